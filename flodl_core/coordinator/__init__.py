"""The scheduler: cycles, gate, liveness, epochs, saves. Pure."""
