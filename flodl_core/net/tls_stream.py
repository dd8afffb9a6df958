"""A byte stream inside TLS, over the same raw non-blocking socket as any other of ours.

It is a `ByteStream` whose bytes are sealed: the engine is the standard library's,
fed and drained here, so that nothing else reads or writes the socket. At most one
record or 64 KiB is held in each direction. It cannot be given to threads.

    receive ◀─ engine ◀─ incoming ◀─ socket
    send_all ─▶ engine ─▶ outgoing ─▶ socket
"""

import contextlib
import socket
import ssl
from typing import Final, NoReturn

import anyio

from flodl_core.errors import LocalProtocolError
from flodl_core.net.byte_stream import READ_BYTES, WRITE_STALL_S, ByteStream
from flodl_core.net.tls import WrongFingerprintError
from flodl_core.units import KIB, Seconds

MAX_HANDSHAKE_BYTES: Final = 32 * KIB
"""Of the other end's half of a handshake: it has proved nothing yet."""

_RECORD_BYTES: Final = 16 * KIB


class TlsFailedError(Exception):
    """The handshake cannot be finished; `reason` is the engine's word for why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TlsStream(ByteStream):
    """One socket with TLS on it; `handshake` comes first.

    Args:
        sock: connected; its unread bytes are the other end's half of the handshake.
        context: of this end.
        is_server: whether this end was dialled.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, is_server: bool) -> None:
        super().__init__(sock)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._engine = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._ahead = b""
        self.has_spoken = False
        """Whether anything of this end was sent."""
        self._turn = anyio.Lock()

    async def handshake(self) -> None:
        """Agree on keys; the caller sets the ceiling.

        Raises:
            TlsFailedError: the other end speaks no TLS 1.3.
            WrongFingerprintError: it has another certificate; it learns only that we leave.
            anyio.EndOfStream: the other end ended first.
            anyio.BrokenResourceError: the connection broke.
            TimeoutError: the other end takes nothing.
        """
        taken = 0
        while True:
            try:
                self._engine.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                data = await super().receive(MAX_HANDSHAKE_BYTES)
                taken += len(data)
                if taken > MAX_HANDSHAKE_BYTES:
                    raise TlsFailedError("its half of the handshake is too long") from None
                self._incoming.write(data)
            except WrongFingerprintError:
                raise
            except ssl.SSLError as error:
                await self._tell_why()
                raise TlsFailedError(_reason(error)) from error
            else:
                await self._flush()
                return

    async def peek(self, nbytes: int) -> bytes:
        """Return the first 1 … `nbytes` bytes of what `receive` will return, as they are there.

        Raises:
            anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError: as `receive`.
        """
        if len(self._ahead) < nbytes:
            self._ahead += await self._receive_sealed(nbytes - len(self._ahead))
        return self._ahead

    async def receive(self, max_bytes: int = READ_BYTES) -> bytes:
        """Return between 1 and `max_bytes` bytes; lets other tasks run first.

        Raises:
            anyio.EndOfStream: the peer ended its direction and said so.
            anyio.BrokenResourceError: the connection was cut, or a record does not verify.
            anyio.ClosedResourceError: it was closed here.
        """
        if self._ahead:
            taken, self._ahead = self._ahead[:max_bytes], self._ahead[max_bytes:]
            return taken
        return await self._receive_sealed(max_bytes)

    async def send_all(self, data: bytes | memoryview, *, stall_s: Seconds = WRITE_STALL_S) -> None:
        """Write all of `data`; see `ByteStream.send_all`."""
        rest = memoryview(data)
        async with self._turn:
            while rest:
                self._require_open()
                try:
                    rest = rest[self._engine.write(rest[:_RECORD_BYTES]) :]
                except ssl.SSLError as error:
                    raise anyio.BrokenResourceError from error
                await super().send_all(self._outgoing.read(), stall_s=stall_s)

    def send_eof(self) -> None:
        """End our direction, and say so inside TLS; what the socket cannot take now is not said."""
        self._say_end()
        super().send_eof()

    def close(self) -> None:
        """Close the socket; whoever waits on it is woken with an error. Idempotent."""
        if not self.is_closed:
            self._say_end()
        super().close()

    def detach(self) -> NoReturn:
        """Refuse: bytes that were read ahead would stay here.

        Raises:
            LocalProtocolError: always.
        """
        raise LocalProtocolError("a TLS stream cannot be given to threads", fix="use MUX for that")

    async def _receive_sealed(self, max_bytes: int) -> bytes:
        while True:
            self._require_open()
            try:
                data = self._engine.read(max_bytes)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._take_more()
                continue
            except ssl.SSLZeroReturnError:
                raise anyio.EndOfStream from None
            except ssl.SSLError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            return data

    async def _take_more(self) -> None:
        try:
            self._incoming.write(await super().receive(READ_BYTES))
        except anyio.EndOfStream as error:
            raise anyio.BrokenResourceError from error

    async def _flush(self) -> None:
        if not self._outgoing.pending:
            return
        self.has_spoken = True
        async with self._turn:
            await super().send_all(self._outgoing.read())

    async def _tell_why(self) -> None:
        """Send the alert that the engine has made, if the other end still takes it."""
        with contextlib.suppress(anyio.BrokenResourceError, TimeoutError, OSError):
            await self._flush()
        super().send_eof()

    def _say_end(self) -> None:
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._engine.unwrap()
        with contextlib.suppress(OSError):
            self.sock.send(self._outgoing.read())


def _reason(error: ssl.SSLError) -> str:
    """Return the engine's word, as `unsupported protocol`."""
    return str(error.reason or "it is no TLS").replace("_", " ").lower()
