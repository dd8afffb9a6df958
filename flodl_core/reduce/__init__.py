"""Arithmetic on buffers: mass, fold, divide once, divergence."""
