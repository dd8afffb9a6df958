"""Packaged jobs."""
