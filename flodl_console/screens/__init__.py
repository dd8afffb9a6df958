"""Screens: what stands where, and which keys act there."""
