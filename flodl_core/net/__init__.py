"""Sockets, clocks, shared memory and child processes."""
