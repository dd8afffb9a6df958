"""A byte stream over a raw non-blocking socket, with no transport in between.

It waits with anyio for the socket to be ready and reads or writes itself, so
nothing is buffered where it cannot be seen: bytes that were peeked are still in
the socket, and a socket can be taken back (`detach`) and given to threads. It
works for TCP and for inherited Unix socketpairs, on asyncio and trio.
"""

import contextlib
import math
import socket
from collections.abc import Iterator
from typing import Final

import anyio
import anyio.lowlevel

from flodl_core.units import KIB, Seconds

READ_BYTES: Final = 64 * KIB
WRITE_STALL_S: Final = 30.0

_LINGER_S: Final = 0.25
_LINGER_BYTES: Final = 64 * KIB


class ByteStream:
    """One socket, owned; at most one reader and one writer at a time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        self._sock = sock
        self._is_closed = False

    @property
    def sock(self) -> socket.socket:
        """The socket underneath, for options and names; never to be read or written."""
        return self._sock

    @property
    def is_closed(self) -> bool:
        """Whether the stream was closed or detached here."""
        return self._is_closed

    async def receive(self, max_bytes: int = READ_BYTES) -> bytes:
        """Return between 1 and `max_bytes` bytes; lets other tasks run first.

        Raises:
            anyio.EndOfStream: the peer ended its direction.
            anyio.BrokenResourceError: the connection was reset.
            anyio.ClosedResourceError: it was closed here.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            self._require_open()
            try:
                data = self._sock.recv(max_bytes)
            except (BlockingIOError, InterruptedError):
                with _broken_if_os_fails():
                    await anyio.wait_readable(self._sock)
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            return data

    async def send_all(self, data: bytes | memoryview, *, stall_s: Seconds = WRITE_STALL_S) -> None:
        """Write all of `data`.

        Args:
            data: written in order; a cancelled call may have written a part.
            stall_s: how long the peer may take no byte at all.

        Raises:
            TimeoutError: the peer took nothing for `stall_s`.
            anyio.BrokenResourceError: the connection is gone.
            anyio.ClosedResourceError: it was closed here.
        """
        rest = memoryview(data)
        while rest:
            self._require_open()
            try:
                rest = rest[self._sock.send(rest) :]
            except (BlockingIOError, InterruptedError):
                await self._wait_writable(stall_s)
            except OSError as error:
                raise anyio.BrokenResourceError from error

    async def _wait_writable(self, stall_s: Seconds) -> None:
        with anyio.move_on_after(None if math.isinf(stall_s) else stall_s) as scope:
            with _broken_if_os_fails():
                await anyio.wait_writable(self._sock)
        if scope.cancelled_caught:
            raise TimeoutError(f"the peer took no byte for {stall_s:g} s")

    def send_eof(self) -> None:
        """End our direction; the peer's stays open."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    async def send_last(self, data: bytes) -> None:
        """Write all of `data`, end our direction, and take for a moment what still comes.

        Closing a socket with unread bytes in it would cut off what was written last.

        Raises:
            TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError: as `send_all`.
        """
        await self.send_all(data)
        self.send_eof()
        taken = 0
        with (
            anyio.move_on_after(_LINGER_S),
            contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError),
        ):
            while taken < _LINGER_BYTES:
                taken += len(await self.receive())

    def close(self) -> None:
        """Close the socket; whoever waits on it is woken with an error. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        _wake_waiters(self._sock)
        self._sock.close()

    def detach(self) -> socket.socket:
        """Give the socket up, still non-blocking, with every unread byte in it."""
        self._require_open()
        self._is_closed = True
        _wake_waiters(self._sock)
        return self._sock

    def _require_open(self) -> None:
        if self._is_closed:
            raise anyio.ClosedResourceError


def _wake_waiters(sock: socket.socket) -> None:
    with contextlib.suppress(Exception):  # outside an event loop nobody can be waiting
        anyio.notify_closing(sock)


@contextlib.contextmanager
def _broken_if_os_fails() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise anyio.BrokenResourceError from error
