"""The real machines on a virtual clock and a lossy network."""
