"""Descriptors that came along with a message: exactly one, or none, and never leaked.

Whoever receives owns what arrived, also when the message turns out to be wrong.
"""

import os
from collections.abc import Sequence

from flodl_core.errors import RemoteProtocolError


def sole_descriptor(fds: Sequence[int], what: str) -> int:
    """Return the one descriptor that came with `what`; it stays the caller's to close.

    Raises:
        RemoteProtocolError: none came, or several.
    """
    if len(fds) != 1:
        raise RemoteProtocolError(
            f"{what} came with {len(fds)} descriptors, expected exactly one",
            fix="start every process of the run from the same version of flodl",
        )
    return fds[0]


def close_all(fds: Sequence[int]) -> None:
    """Close every descriptor that came with a message."""
    for fd in fds:
        os.close(fd)
