"""Links between a relay and the root for tests: one within the process, and the real one.

`FakeLink` keeps the promises of a mux link and none beyond: messages overtake buckets
that wait, callbacks come from a thread of the link, values are copied when opened. It
can be cut at a chosen bucket, before it or in the middle of it.
"""

import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from flodl_core.errors import RemoteProtocolError
from flodl_core.messages.data import BucketFrame
from flodl_core.net.addresses import peer_of
from flodl_core.net.mux_end import MuxEnd
from flodl_core.net.mux_link import LinkClosedError, MuxLink
from flodl_core.wire.handshake import SessionKeys


class Callbacks(Protocol):
    def on_message(self, message: object) -> None: ...
    def on_bucket_begin(self, frame: BucketFrame) -> memoryview: ...
    def on_bucket(self, frame: BucketFrame) -> None: ...
    def on_closed(self, error: Exception | None) -> None: ...


class Late:
    """Callbacks bound after the link was made."""

    def __init__(self) -> None:
        self.target: Callbacks | None = None

    def bind(self, target: Callbacks) -> None:
        self.target = target

    def on_message(self, message: object) -> None:
        self.target.on_message(message)

    def on_bucket_begin(self, frame: BucketFrame) -> memoryview:
        return self.target.on_bucket_begin(frame)

    def on_bucket(self, frame: BucketFrame) -> None:
        self.target.on_bucket(frame)

    def on_closed(self, error: Exception | None) -> None:
        self.target.on_closed(error)


CutRule = Callable[[BucketFrame], str | None]
"""None to deliver, "before" or "within" to cut there."""


class FakeLink:
    """One end; `other` is the far one. Its thread delivers what arrives here."""

    def __init__(self, callbacks: Callbacks) -> None:
        self.other: FakeLink | None = None
        self.cut_rule: CutRule = lambda frame: None
        self.ended_for: Callable[[BucketFrame], bool] = lambda frame: False
        """Sending such a bucket finds the connection ended, while what came still arrives."""
        self.gate = threading.Event()
        """Buckets are delivered while it is set."""
        self.gate.set()
        self.error: Exception | None = None
        self.delivered: list[object] = []
        self._callbacks = callbacks
        self._messages: deque[object] = deque()
        self._buckets: deque[tuple[BucketFrame, memoryview, Callable[[], None] | None]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._deliver_all, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, message: object) -> None:
        self.other._put(message=message)

    def send_bucket(
        self, frame: BucketFrame, values: memoryview, *, done: Callable[[], None] | None = None
    ) -> None:
        assert values.nbytes == frame.nbytes
        if self.ended_for(frame):
            raise LinkClosedError("the fake link has ended")
        self.other._put(bucket=(frame, values, done))

    def close(self) -> None:
        for end in (self, self.other):
            with end._changed:
                end._is_closed = True
                end._changed.notify_all()

    def join(self) -> None:
        self._thread.join(5)
        assert not self._thread.is_alive()

    def _put(self, *, message: object = None, bucket: tuple | None = None) -> None:
        with self._changed:
            if self._is_closed:
                raise LinkClosedError("the fake link is closed")
            if bucket is not None:
                assert len(self._buckets) < 8, "more than 8 buckets wait"
                self._buckets.append(bucket)
            else:
                self._messages.append(message)
            self._changed.notify_all()

    def _deliver_all(self) -> None:
        try:
            while (step := self._take()) is not None:
                step()
        except Exception as error:
            self.error = error
            self.close()
        self._callbacks.on_closed(self.error)

    def _take(self) -> Callable[[], None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._messages or self._buckets)
            if self._is_closed:
                return None
            if self._messages:
                message = self._messages.popleft()
                self.delivered.append(message)
                return lambda: self._callbacks.on_message(message)
            bucket = self._buckets.popleft()
        return lambda: self._deliver(*bucket)

    def _deliver(
        self, frame: BucketFrame, values: memoryview, done: Callable[[], None] | None
    ) -> None:
        assert self.gate.wait(20)
        cut = self.cut_rule(frame)
        if cut == "before":
            self.close()
            return
        if frame.nbytes:
            place = self._callbacks.on_bucket_begin(frame)
            half = len(values.cast("B")) // 2
            place.cast("B")[:half] = values.cast("B")[:half]
            if cut == "within":
                self.close()
                return
            place.cast("B")[half:] = values.cast("B")[half:]
        self.delivered.append(frame)
        if done is not None:
            done()
        self._callbacks.on_bucket(frame)


def fake_pair(near: Callbacks, far: Callbacks) -> tuple[FakeLink, FakeLink]:
    one, two = FakeLink(near), FakeLink(far)
    one.other, two.other = two, one
    return one, two


def mux_pair(near: Callbacks, far: Callbacks) -> tuple[MuxLink, MuxLink]:
    """Both ends of a real mux link over a loopback TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        two, _ = server.accept()
    for sock in (one, two):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    up, down, up_gcm, down_gcm = (os.urandom(size) for size in (32, 32, 16, 16))
    keys = SessionKeys(send_hmac=up, receive_hmac=down, send_gcm=up_gcm, receive_gcm=down_gcm)
    far_keys = SessionKeys(send_hmac=down, receive_hmac=up, send_gcm=down_gcm, receive_gcm=up_gcm)
    peer = peer_of(one.getpeername())
    return (
        MuxLink(MuxEnd(sock=one, keys=keys, peer=peer), near, label="near"),
        MuxLink(MuxEnd(sock=two, keys=far_keys, peer=peer), far, label="far"),
    )


class HandLink:
    """A link whose far end is the test: it keeps what was sent."""

    def __init__(self) -> None:
        self.messages: list[object] = []
        self.buckets: list[tuple[BucketFrame, bytes]] = []
        self.is_closed = False
        self.refuses = False
        self._changed = threading.Condition()

    def send(self, message: object) -> None:
        self._keep(self.messages, message)

    def send_bucket(
        self, frame: BucketFrame, values: memoryview, *, done: Callable[[], None] | None = None
    ) -> None:
        self._keep(self.buckets, (frame, bytes(values)))

    def close(self) -> None:
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def wait(self, condition: Callable[["HandLink"], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), 20)

    def _keep(self, where: list, what: object) -> None:
        if self.refuses:
            raise RemoteProtocolError("the link refuses")
        with self._changed:
            where.append(what)
            self._changed.notify_all()
