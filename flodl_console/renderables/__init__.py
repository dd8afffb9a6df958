"""Drawings of views; no DOM."""
