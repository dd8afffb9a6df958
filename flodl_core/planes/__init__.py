"""How tensors move: slots, staging, relay fold, star root, star client."""
