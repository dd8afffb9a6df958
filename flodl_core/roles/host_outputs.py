"""The files of one host's children, on a disk that may stop answering.

What it is: what children print is kept within its bound, and looked at for a stack. All of
it is done in threads that the loop leaves behind (`abandonable`).
What it is not: what a child prints, nor who is asked for its stack.
Who drives it: `host_children`.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import anyio

from flodl_core.roles.abandonable import run_abandonable
from flodl_core.roles.output_file import LIMIT_BYTES, shorten_output
from flodl_core.units import Seconds

T = TypeVar("T")

ANSWER_S: Seconds = 3.0
"""For a disk to say how long a file is, or what stands in it."""
STACK_BYTES = 64 * 1024


async def ask_disk(function: Callable[[], T]) -> T:
    """Call what looks at files and return what it returns.

    Raises:
        TimeoutError: the disk does not answer; to a caller that is one more `OSError`.
        OSError: as the function.
    """
    with anyio.fail_after(ANSWER_S):
        return await run_abandonable(function, name="disk")


def size_of(path: Path) -> int:
    """Return how many bytes a file has. Blocks as long as its disk does.

    Raises:
        OSError: it is gone, or cannot be looked at.
    """
    return path.stat().st_size


def read_since(path: Path, before: int) -> str:
    """Return what was appended to a file that may have been cut meanwhile, at most 64 KiB.

    Args:
        path: the file; blocks as long as its disk does.
        before: its size at the beginning, in bytes.

    Raises:
        OSError: it is gone, or cannot be read.
    """
    with path.open("rb") as output:
        size = output.seek(0, os.SEEK_END)
        output.seek(before if before <= size else max(0, size - STACK_BYTES))
        return output.read(STACK_BYTES).decode(errors="replace")


class OutputBound:
    """Keeps what the children of a host print within its bound.

    Args:
        limit_bytes: of each file.
    """

    def __init__(self, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._turn = threading.Lock()

    async def keep(self, paths: Sequence[Path]) -> None:
        """Shorten those that have grown past it; does nothing while an earlier call hangs.

        Where the caller is cancelled, a call that hangs is left behind.
        """
        await run_abandonable(lambda: self._shorten(paths), name="outputs")

    def _shorten(self, paths: Sequence[Path]) -> None:
        if not self._turn.acquire(timeout=ANSWER_S):
            return
        try:
            for path in paths:
                with contextlib.suppress(OSError):
                    if size_of(path) > self._limit_bytes:
                        shorten_output(path, limit_bytes=self._limit_bytes)
        finally:
            self._turn.release()
