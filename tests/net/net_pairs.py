"""Small scripts for the tests of net: keys, connected pairs, a running port, recorders."""

import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio

from flodl_core.ids import Cycle, Rank, Round
from flodl_core.messages.data import BucketFrame
from flodl_core.net.addresses import Peer
from flodl_core.net.admission_gate import GateLimits
from flodl_core.net.mux_end import MuxEnd
from flodl_core.net.mux_link import MuxLink
from flodl_core.net.port import Port, PortConfig, PortConnection
from flodl_core.net.port_statistics import DropNote
from flodl_core.wire.handshake import Channel, ClientHandshake, ServerHandshake, SessionKeys

TOKEN = bytes(range(16))
OTHER_TOKEN = bytes(range(1, 17))
SALT = bytes(range(100, 116))


def session_keys() -> tuple[SessionKeys, SessionKeys]:
    """Both ends' keys of one connection, from fixed randomness."""
    client = ClientHandshake(Channel.MUX, SALT, nonce=b"a" * 32, private_key=b"b" * 32)
    server = ServerHandshake(Channel.MUX, SALT, nonce=b"c" * 32, private_key=b"d" * 32)
    reply, server_keys = server.reply_untrusted(client.hello())
    assert server_keys is not None
    return client.finish_untrusted(reply), server_keys


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a loopback TCP connection, blocking."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    return near, far


class Recorder:
    """Callbacks of a MuxLink that remember, and wait for what was asked for."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.messages: list[object] = []
        self.buckets: list[tuple[BucketFrame, bytes]] = []
        self.begun: list[BucketFrame] = []
        self.closed: list[Exception | None] = []
        self.order: list[str] = []
        self.place = bytearray()
        self.on_each: Callable[[object], None] = lambda _: None

    def on_message(self, message: object) -> None:
        self.on_each(message)
        with self.changed:
            self.messages.append(message)
            self.order.append(type(message).__name__)
            self.changed.notify_all()

    def on_bucket_begin(self, frame: BucketFrame) -> memoryview:
        self.place = bytearray(b"\xee" * frame.nbytes)
        with self.changed:
            self.begun.append(frame)
            self.order.append("begin")
            self.changed.notify_all()
        return memoryview(self.place)

    def on_bucket(self, frame: BucketFrame) -> None:
        with self.changed:
            self.buckets.append((frame, bytes(self.place) if frame.nbytes else b""))
            self.order.append("bucket")
            self.changed.notify_all()

    def on_closed(self, error: Exception | None) -> None:
        with self.changed:
            self.closed.append(error)
            self.order.append("closed")
            self.changed.notify_all()

    def wait(self, ready: Callable[["Recorder"], bool], most_s: float = 10.0) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: ready(self), most_s), self.order


def mux_ends() -> tuple[MuxEnd, MuxEnd]:
    near, far = tcp_pair()
    keys, far_keys = session_keys()
    peer = Peer(address="127.0.0.1", port=1)
    return (
        MuxEnd(sock=near, keys=keys, peer=peer),
        MuxEnd(sock=far, keys=far_keys, peer=peer),
    )


@contextlib.contextmanager
def mux_pair(**options: Any) -> Iterator[tuple[MuxLink, Recorder, MuxLink, Recorder]]:
    """Two started links and what each received; both are closed at the end."""
    near_end, far_end = mux_ends()
    near_seen, far_seen = Recorder(), Recorder()
    near = MuxLink(near_end, near_seen, label="near", **options)
    far = MuxLink(far_end, far_seen, label="far", **options)
    near.start()
    far.start()
    try:
        yield near, near_seen, far, far_seen
    finally:
        near.close()
        far.close()
    assert [len(seen.closed) for seen in (near_seen, far_seen)] == [1, 1]


def bucket(nbytes: int, *, index: int = 0, count: int = 100) -> BucketFrame:
    return BucketFrame(
        cycle=Cycle(3),
        round=Round.PARAMS,
        index=index,
        count=count,
        mass=7.0,
        ranks=(Rank(0), Rank(2)),
        nbytes=nbytes,
        dtype="f32",
    )


async def ignore(connection: PortConnection) -> None:
    await anyio.sleep_forever()


class RunningPort:
    """A port that serves, its notes, and clients of it."""

    def __init__(self, port: Port, notes: list[DropNote]) -> None:
        self.port = port
        self.notes = notes
        self.at = ("127.0.0.1", port.address.port)

    def client(self, data: bytes = b"") -> socket.socket:
        sock = socket.create_connection(self.at)
        if data:
            sock.sendall(data)
        sock.settimeout(0)
        return sock

    def dropped(self) -> dict[str, int]:
        counts = self.port.statistics().dropped
        return {reason.value: count for reason, count in counts.items() if count}


@contextlib.asynccontextmanager
async def running_port(
    *,
    on_join: Any = ignore,
    on_mux: Any = ignore,
    on_http: Any = ignore,
    limits: GateLimits | None = None,
    **config: Any,
) -> AsyncIterator[RunningPort]:
    notes: list[DropNote] = []
    port = Port(
        PortConfig(port=0, limits=limits or GateLimits(), **config),
        on_join=on_join,
        on_mux=on_mux,
        on_http=on_http,
        on_drop=notes.append,
    )
    port.listen()
    async with anyio.create_task_group() as tasks:
        await tasks.start(port.serve)
        try:
            yield RunningPort(port, notes)
        finally:
            tasks.cancel_scope.cancel()


async def until(ready: Callable[[], object], most_s: float = 10.0) -> None:
    """Let the loop run until `ready` is true."""
    with anyio.fail_after(most_s):
        while not ready():  # noqa: ASYNC110 - what is waited for tells nobody
            await anyio.sleep(0.002)


async def ended(sock: socket.socket) -> bytes:
    """Everything the other end still sends until it closes or resets."""
    got = b""
    with anyio.fail_after(10):
        while True:
            try:
                data = sock.recv(65536)
            except BlockingIOError:
                await anyio.wait_readable(sock)
                continue
            except OSError:
                return got
            if not data:
                return got
            got += data
