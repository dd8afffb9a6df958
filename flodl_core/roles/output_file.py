"""The file that takes what a child prints: appended by the child, kept short by its parent.

A job may print without end, and what it prints last says most. The child holds the
file open for appending, so that it is shortened in place: the newest half is written
to its beginning, and the rest is cut off. What is printed in that moment is lost.
"""

from pathlib import Path

from flodl_core.units import MIB

LIMIT_BYTES = 16 * MIB
DROPPED = b"[older output was dropped]\n"


def shorten_output(path: Path, *, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Drop the older part of a file that has grown past its limit.

    Blocking, for a few milliseconds where it drops something. A file that is gone, or a
    disk that fails, is left as it is: output must not be able to fail a run.

    Args:
        path: the file; whoever writes to it does so by appending.
        limit_bytes: above it the newest half of so many bytes stays, from a line's start.

    Returns:
        Whether something was dropped.
    """
    try:
        with path.open("r+b") as file:
            size = file.seek(0, 2)
            if size <= limit_bytes:
                return False
            file.seek(size - limit_bytes // 2)
            newest = file.read(limit_bytes // 2)
            kept = DROPPED + (newest.partition(b"\n")[2] or newest)
            file.seek(0)
            file.write(kept)
            file.truncate()
    except OSError:
        return False
    return True
