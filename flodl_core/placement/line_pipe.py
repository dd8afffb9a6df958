"""Lines over a pipe, read and written without blocking the event loop; bounded.

What it is: a reader and a writer of one descriptor each.
What it is not: what the lines mean (`dialog`).
Who drives it: `session` on the launcher's side, `roles.placed` on the host.
"""

import os

import anyio

from flodl_core.placement.dialog import LINE_BYTES

_PIECE = 1 << 16


class LineReader:
    """Lines of a descriptor that becomes this object's own.

    Args:
        descriptor: a pipe or socket.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._kept = bytearray()
        os.set_blocking(descriptor, False)

    async def next_line(self) -> bytes:
        """Return the next line without its end. Cancelling loses nothing.

        Raises:
            anyio.EndOfStream: there is none any more.
            ValueError: the line is longer than 1 MiB.
        """
        while True:
            line, found, rest = bytes(self._kept).partition(b"\n")
            if found:
                self._kept = bytearray(rest)
                return line
            if len(self._kept) > LINE_BYTES:
                raise ValueError(f"a line of more than {LINE_BYTES} bytes came")
            await anyio.wait_readable(self._descriptor)
            try:
                piece = os.read(self._descriptor, _PIECE)
            except BlockingIOError:
                continue
            except OSError as error:
                raise anyio.EndOfStream from error
            if not piece:
                raise anyio.EndOfStream
            self._kept += piece

    def close(self) -> None:
        """Close the descriptor; twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LineWriter:
    """Writes lines to a descriptor that becomes this object's own.

    Args:
        descriptor: a pipe or socket.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    async def write(self, line: bytes) -> None:
        """Write a whole line, its end included.

        Raises:
            anyio.BrokenResourceError: nobody reads any more.
        """
        left = memoryview(line)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            except OSError as error:
                raise anyio.BrokenResourceError from error

    def close(self) -> None:
        """Close the descriptor, which the other end sees; twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
