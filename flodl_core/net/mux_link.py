"""A MUX connection in use: one sender and one receiver thread own its socket.

Everything of a worker host goes through it: control messages, which an event
loop or any thread queues, and sealed buckets, which plane threads queue. The
sender numbers and seals each piece as it writes it, and serves messages between
pieces. The receiver opens, decodes and calls back; all callbacks come from its
thread, one at a time, and `on_closed` is the last of them.

    send, send_bucket ─▶ outbox ─▶ sender ─▶ socket ─▶ receiver ─▶ callbacks
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from flodl_core.errors import BadFrameError
from flodl_core.messages.data import BucketFrame
from flodl_core.net import shared_memory
from flodl_core.net.addresses import Peer
from flodl_core.net.mux_end import MuxEnd
from flodl_core.net.mux_outbox import LinkClosedError, MuxOutbox, WaitingBucket, WaitingMessage
from flodl_core.units import BUCKET_BYTES, KIB, Seconds
from flodl_core.wire.buckets import (
    MAX_PIECE_BODY_BYTES,
    BucketOpener,
    BucketSealer,
    piece_body_bytes,
)
from flodl_core.wire.codec import decode_untrusted, encode
from flodl_core.wire.frame import (
    BUCKET_KIND,
    HEADER_BYTES,
    SendCounter,
    parse_header_untrusted,
)

WRITE_STALL_S: Final = 30.0

_MESSAGES_TOGETHER_BYTES: Final = 64 * KIB
_JOIN_S: Final = 5.0
_CLOSE: Final = "the connection is closed; look at the other host's log for why it ended."


class MuxCallbacks(Protocol):
    """What the receiver thread calls. An error raised here closes the link."""

    def on_message(self, message: object) -> None:
        """A message came."""
        ...

    def on_bucket_begin(self, frame: BucketFrame) -> memoryview:
        """A bucket with values begins; give `frame.nbytes` writable bytes for them.

        Verified values are copied there piece by piece; all are there when
        `on_bucket` is called, and nothing before that is final. Not called for
        a bucket of zero mass, which has no values.
        """
        ...

    def on_bucket(self, frame: BucketFrame) -> None:
        """A bucket is complete."""
        ...

    def on_closed(self, error: Exception | None) -> None:
        """The link ended, for good; called once. None after a clean end or `close`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MuxStatistics:
    """Of one link since it began."""

    sent_bytes: int
    received_bytes: int
    waiting_messages: int
    peak_messages: int


class MuxLink:
    """One end of a MUX connection.

    Args:
        end: the connection; it is this link's from here on.
        callbacks: called from the receiver thread, after `start`.
        label: names the threads, for example the host.
        write_stall_s: how long the peer may take no byte before the link ends.
    """

    def __init__(
        self,
        end: MuxEnd,
        callbacks: MuxCallbacks,
        *,
        label: str = "mux",
        write_stall_s: Seconds = WRITE_STALL_S,
    ) -> None:
        self.peer = end.peer
        self._sock = end.sock
        self._callbacks = callbacks
        self._outbox = MuxOutbox()
        sending = SendCounter()
        self._sealer = end.sealer(sending)
        self._bucket_sealer = BucketSealer(end.keys.send_gcm, sending)
        self._opener = end.opener()
        self._bucket_opener = BucketOpener(
            end.keys.receive_gcm,
            end.received,
            place=callbacks.on_bucket_begin,
            max_bucket=BUCKET_BYTES,
        )
        self._sent_bytes = 0
        self._received_bytes = 0
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._is_ending = False
        self._running = 0
        self._write_stall_s = write_stall_s
        self._sock.settimeout(None)
        _skip_pacing(self._sock, end.peer)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(write_stall_s))
        self._sender = threading.Thread(target=self._send_all, name=f"{label} send", daemon=True)
        self._receiver = threading.Thread(
            target=self._receive_all, name=f"{label} receive", daemon=True
        )
        shared_memory.guard_from_forks(self._sock.fileno())

    def start(self) -> None:
        """Start both threads; callbacks may come at once."""
        self._running = 2
        self._sender.start()
        self._receiver.start()

    def send(self, message: object) -> None:
        """Queue a message; never blocks, from any thread.

        Raises:
            LinkClosedError: the link has ended.
            OutboxFullError: too much waits already; the caller drops the host.
            LocalProtocolError: it is no message.
        """
        kind, payload = encode(message)
        self._outbox.put_message(WaitingMessage(kind, payload))

    def send_bucket(
        self, frame: BucketFrame, values: memoryview, *, done: Callable[[], None] | None = None
    ) -> None:
        """Queue a bucket behind the earlier ones; blocks while 8 wait. For plane threads.

        Args:
            frame: what it is; `frame.nbytes` of 0 declares that no values follow.
            values: contiguous, `frame.nbytes` bytes, unchanged until `done`.
            done: called from the sender thread when all of it was handed to the
                kernel; not called if the link ends before that.

        Raises:
            LinkClosedError: the link has ended, also while waiting.
            LocalProtocolError: frame and values do not fit together.
        """
        pieces = self._bucket_sealer.iter_pieces(frame, values)
        self._outbox.put_bucket(WaitingBucket(pieces, done))

    def close(self, *, flush_s: Seconds = 0.0) -> None:
        """End the link and wait for its threads. Idempotent.

        Args:
            flush_s: how long what is queued may still take to be written, and
                the peer to end its side.
        """
        if self._running and flush_s > 0 and self._outbox.wait_empty(flush_s):
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
            if threading.current_thread() is not self._receiver:
                self._receiver.join(flush_s)
        self._end(None)
        for thread in (self._sender, self._receiver):
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_JOIN_S)
        if not self._sender.ident:
            self._release()

    def statistics(self) -> MuxStatistics:
        """Return the counts so far."""
        return MuxStatistics(
            sent_bytes=self._sent_bytes,
            received_bytes=self._received_bytes,
            waiting_messages=self._outbox.waiting_messages,
            peak_messages=self._outbox.peak_messages,
        )

    def _end(self, error: Exception | None) -> None:
        """Remember the first reason, free every waiter, wake the receiver."""
        with self._lock:
            if self._is_ending:
                return
            self._is_ending = True
            self._error = error
        self._outbox.close()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _thread_ended(self) -> None:
        with self._lock:
            self._running -= 1
            is_last = self._running == 0
        if is_last:
            self._release()

    def _release(self) -> None:
        fd = self._sock.fileno()
        if fd >= 0:
            shared_memory.unguard(fd)
            self._sock.close()

    def _send_all(self) -> None:
        try:
            while True:
                work = self._outbox.take(_MESSAGES_TOGETHER_BYTES)
                if work is None:
                    return
                if isinstance(work, WaitingBucket):
                    self._send_piece(work)
                else:
                    self._send_messages(work)
        except BlockingIOError:
            stalled = BadFrameError(
                f"{self.peer} took no byte for {self._write_stall_s:g} s",
                fix="look whether that host is stopped, overloaded or cut off.",
            )
            self._end(stalled)
        except OSError as error:
            self._end(LinkClosedError(f"{self.peer} ended the connection ({error})", fix=_CLOSE))
        except Exception as error:  # the receiver reports it, whatever it is
            self._end(error)
        finally:
            self._thread_ended()

    def _send_messages(self, messages: list[WaitingMessage]) -> None:
        if len(messages) > 1:
            self._write(b"".join(self._sealer.seal(one.kind, one.payload) for one in messages))
            return
        for piece in self._sealer.pieces(messages[0].kind, messages[0].payload):
            self._write(piece)

    def _send_piece(self, bucket: WaitingBucket) -> None:
        piece = next(bucket.pieces, None)
        if piece is not None:
            for buffer in piece:
                self._write(buffer)
            return
        self._outbox.finish_bucket()
        if bucket.done is not None:
            bucket.done()

    def _write(self, data: bytes | memoryview) -> None:
        self._sock.sendall(data)
        self._sent_bytes += len(data)

    def _receive_all(self) -> None:
        try:
            self._receive_until_end()
            self._end(None)
        except Exception as error:  # whatever a peer or a callback does ends this link only
            self._end(error)
        try:
            self._callbacks.on_closed(self._error)
        finally:
            self._thread_ended()

    def _receive_until_end(self) -> None:
        header_bytes = memoryview(bytearray(HEADER_BYTES))
        body_bytes = memoryview(bytearray(MAX_PIECE_BODY_BYTES))
        while self._read(header_bytes, may_end=True):
            header = parse_header_untrusted(header_bytes)
            if header.kind == BUCKET_KIND:
                body = body_bytes[: piece_body_bytes(header)]
                self._read(body)
                frame = self._bucket_opener.open_piece_untrusted(header, body)
                if frame is not None:
                    self._callbacks.on_bucket(frame)
                continue
            body = body_bytes[: self._opener.body_bytes(header)]
            self._read(body)
            opened = self._opener.open_untrusted(header, body)
            message = None if opened is None else decode_untrusted(opened.kind, opened.payload)
            if message is not None:
                self._callbacks.on_message(message)

    def _read(self, target: memoryview, *, may_end: bool = False) -> bool:
        """Fill `target`; False at a clean end, which only `may_end` allows."""
        filled = 0
        while filled < len(target):
            try:
                count = self._sock.recv_into(target[filled:], 0, socket.MSG_WAITALL)
            except InterruptedError:
                continue
            except OSError:
                count = 0
            if count == 0:
                if may_end and filled == 0 and self._is_at_boundary():
                    return False
                raise BadFrameError(f"{self.peer} broke off inside a frame or bucket", fix=_CLOSE)
            filled += count
        self._received_bytes += filled
        return True

    def _is_at_boundary(self) -> bool:
        return self._opener.at_boundary and self._bucket_opener.at_boundary


def _skip_pacing(sock: socket.socket, peer: Peer) -> None:
    """Send without a pace within one machine, where pacing only costs processor time."""
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is not None and peer.is_loopback:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, option, b"cubic")


def _timeval(seconds: Seconds) -> bytes:
    whole = int(seconds)
    return struct.pack("ll", whole, int((seconds - whole) * 1e6))


__all__ = ["LinkClosedError", "MuxCallbacks", "MuxLink", "MuxStatistics"]
