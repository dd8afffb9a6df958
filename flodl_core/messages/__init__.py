"""All messages: one frozen class each, the same in a process and on the wire.

Adding a message is one class here, one golden vector and one handler; a test
lists all three. Importing this package registers every class.
"""

from flodl_core.messages import control, data, join, metrics, mux, rendezvous, timing
from flodl_core.messages.registry import KINDS, NUMBERS, RESERVED_KINDS

SCHEMA_VERSION = 1

__all__ = [
    "KINDS",
    "NUMBERS",
    "RESERVED_KINDS",
    "SCHEMA_VERSION",
    "control",
    "data",
    "join",
    "metrics",
    "mux",
    "rendezvous",
    "timing",
]
