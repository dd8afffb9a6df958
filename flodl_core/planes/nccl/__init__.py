"""The NCCL plane: collectives among ranks that train on like GPUs; the star serves the rest."""
