"""Messages over inherited Unix socketpairs: header and payload, no tag, because nobody is between.

`PlainChannel` is the async end, for event loops: CONTROL on ranks' bridges, in
the launcher and in the relay, which forwards what it reads without looking at
it. `BlockingPlain` is the end for threads: DATA, where descriptors of shared
memory travel beside a message. Frames are counted all the same, so that a lost
or doubled one is noticed.
"""

import contextlib
import os
import select
import socket
import struct
import threading
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Final

import anyio

from flodl_core.errors import BadFrameError, LocalProtocolError
from flodl_core.net import clock, shared_memory
from flodl_core.net.byte_stream import ByteStream
from flodl_core.units import Seconds
from flodl_core.wire.codec import decode_untrusted, encode
from flodl_core.wire.frame import (
    HEADER_BYTES,
    Frame,
    FrameOpener,
    FrameSealer,
    Header,
    parse_header_untrusted,
)

WRITE_STALL_S: Final = 30.0
MAX_DESCRIPTORS: Final = 4
"""Descriptors beside one message."""

_UNFINISHED: Final = "look at that process's log for why it ended."
# Not socket.recv_fds: on Python 3.11 it drops the flags, and descriptors would survive an exec.
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_BESIDE_BYTES: Final = socket.CMSG_SPACE(MAX_DESCRIPTORS * array("i").itemsize)


class PlainChannel:
    """An async message channel over one end of a socketpair; one reader, any number of writers.

    Args:
        sock: the end, owned from here on.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._stream = ByteStream(sock)
        self._sealer = FrameSealer(None)
        self._opener = FrameOpener(None)
        self._arrived: deque[Frame] = deque()
        self._turn = anyio.Lock()

    async def send(self, message: object) -> None:
        """Write one message.

        Raises:
            LocalProtocolError: it is no message.
            anyio.BrokenResourceError: the other process is gone, or took
                nothing for 30 s. The channel is closed then, as it is when the
                call is cancelled half-way.
            anyio.ClosedResourceError: it was closed here.
        """
        kind, payload = encode(message)
        await self.send_raw(kind, payload)

    async def send_raw(self, kind: int, payload: bytes) -> None:
        """Write an encoded message as it is; errors as `send`."""
        async with self._turn:
            try:
                await self._stream.send_all(self._sealer.seal(kind, payload), stall_s=WRITE_STALL_S)
            except TimeoutError as error:
                self._stream.close()
                raise anyio.BrokenResourceError from error
            except BaseException:
                self._stream.close()
                raise

    async def receive(self) -> object:
        """Return the next message. Cancelling loses nothing.

        Raises:
            anyio.EndOfStream: the other process closed its end, or is gone.
            BadFrameError: what came is no message, or broke off inside one.
            anyio.ClosedResourceError: it was closed here.
        """
        while True:
            kind, payload = await self.receive_raw()
            message = decode_untrusted(kind, payload)
            if message is not None:
                return message

    async def receive_raw(self) -> tuple[int, bytes]:
        """Return kind and payload of the next message, not decoded; errors as `receive`."""
        while not self._arrived:
            try:
                data = await self._stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
                if self._opener.at_boundary:
                    raise anyio.EndOfStream from error
                raise BadFrameError(
                    "a process of this host broke off inside a message", fix=_UNFINISHED
                ) from error
            self._arrived.extend(self._opener.feed_untrusted(data))
        return self._arrived.popleft()

    async def aclose(self) -> None:
        """Close this end; whoever waits gets an error."""
        self._stream.close()


class BlockingPlain:
    """A message channel for threads, with descriptors; one reader, any number of writers.

    Args:
        sock: one end of a Unix socketpair, owned from here on.
        write_stall_s: how long the other process may take no byte.
    """

    def __init__(self, sock: socket.socket, *, write_stall_s: Seconds = WRITE_STALL_S) -> None:
        sock.settimeout(None)
        whole = int(write_stall_s)
        stall = struct.pack("ll", whole, int((write_stall_s - whole) * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, stall)
        self._sock = sock
        self._sealer = FrameSealer(None)
        self._opener = FrameOpener(None)
        self._turn = threading.Lock()
        self._header: Header | None = None
        self._begun = bytearray()
        self._descriptors: list[int] = []
        shared_memory.guard_from_forks(sock.fileno())

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._sock.fileno()

    def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Write one message and descriptors beside it; blocks while the other end is full.

        Args:
            message: any of ours.
            fds: stay the caller's; the receiver gets duplicates.

        Raises:
            LocalProtocolError: it is no message, or too many descriptors.
            TimeoutError: the other end took nothing for `write_stall_s`.
            OSError: it is gone.
        """
        if len(fds) > MAX_DESCRIPTORS:
            raise LocalProtocolError(
                f"{len(fds)} descriptors beside one message; {MAX_DESCRIPTORS} is the most"
            )
        kind, payload = encode(message)
        with self._turn:
            rest = memoryview(self._sealer.seal(kind, payload))
            try:
                if fds:
                    rest = rest[socket.send_fds(self._sock, [rest], list(fds)) :]
                self._sock.sendall(rest)
            except BlockingIOError as error:
                raise TimeoutError("the other process takes no bytes") from error

    def receive(self, timeout_s: Seconds | None = None) -> tuple[object, list[int]]:
        """Return the next message and the descriptors that came beside it.

        Args:
            timeout_s: None waits for ever; 0 takes what is there. After a
                timeout nothing is lost and the call may be repeated.

        Returns:
            The message, and new descriptors that are the caller's to close.

        Raises:
            TimeoutError: no whole message came in time.
            EOFError: the other end closed between two messages, or is gone.
            BadFrameError: what came is no message, or broke off inside one.
        """
        deadline = None if timeout_s is None else clock.now() + timeout_s
        while True:
            frame = self._next_frame(deadline)
            message = decode_untrusted(frame.kind, frame.payload)
            descriptors, self._descriptors = self._descriptors, []
            if message is not None:
                return message, descriptors
            _close_all(descriptors)

    def close(self) -> None:
        """Close this end and whatever descriptors were not taken. Idempotent."""
        if self._sock.fileno() >= 0:
            shared_memory.unguard(self._sock.fileno())
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            self._sock.close()
        _close_all(self._descriptors)
        self._descriptors = []

    def _next_frame(self, deadline: Seconds | None) -> Frame:
        """Read exactly one frame, so that descriptors belong to it and to no other."""
        while True:
            self._fill(HEADER_BYTES, deadline)
            if self._header is None:
                self._header = parse_header_untrusted(self._begun)
            header = self._header
            self._fill(HEADER_BYTES + self._opener.body_bytes(header), deadline)
            frame = self._opener.open_untrusted(header, self._begun[HEADER_BYTES:])
            self._header = None
            self._begun.clear()
            if frame is not None:
                return frame

    def _fill(self, nbytes: int, deadline: Seconds | None) -> None:
        while len(self._begun) < nbytes:
            _wait_readable(self._sock, deadline)
            try:
                data, beside, flags, _ = self._sock.recvmsg(
                    nbytes - len(self._begun), _BESIDE_BYTES, _CLOSE_ON_EXEC
                )
            except InterruptedError:
                continue
            except ConnectionResetError:
                data, beside, flags = b"", [], 0
            self._descriptors.extend(_descriptors_of(beside))
            if flags & socket.MSG_CTRUNC:
                raise BadFrameError("more descriptors came than belong to one message")
            if not data:
                self._raise_end()
            self._begun += data

    def _raise_end(self) -> None:
        if self._begun or not self._opener.at_boundary:
            raise BadFrameError(
                "a process of this host broke off inside a message", fix=_UNFINISHED
            )
        raise EOFError("the other process closed its end")


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a stream socketpair, closed on exec unless passed on purpose."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def _wait_readable(sock: socket.socket, deadline: Seconds | None) -> None:
    if deadline is None:
        return
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    left_ms = max(0.0, deadline - clock.now()) * 1000
    if not poll.poll(left_ms):
        raise TimeoutError("no whole message came in time")


def _descriptors_of(beside: Sequence[tuple[int, int, bytes]]) -> list[int]:
    numbers = array("i")
    for level, kind, data in beside:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return numbers.tolist()


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
