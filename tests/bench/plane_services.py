"""The launcher's and the relays' share of the data plane as processes, for measurements.

Real roots, relays, mux links, sockets, seals and memory files; no coordinator, no join
window, no torch. Each host listens on a Unix socket. A rank that connects says its
number and the model's tensors; the connection is its DATA socket from then on. When the
ranks of all hosts are in, the plane is built; when they have left, the next model may come.

    python plane_services.py FOLDER 0,1/2,3 f32 yes SECRET launcher|h1|h2…
"""

import contextlib
import hashlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from flodl_core.ids import HostName, Mode, Rank, RunId
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.job import Envelope, Geometry, HostRanks, JobRef, RunSpec, Segment, View
from flodl_core.net import tcp
from flodl_core.net.addresses import peer_of
from flodl_core.net.mux_end import MuxEnd
from flodl_core.net.mux_link import MuxLink
from flodl_core.planes.star_relay import StarRelay
from flodl_core.planes.star_root import StarRoot
from flodl_core.wire.handshake import SessionKeys

ALIGN = 16
START_S = 30.0


@dataclass(frozen=True)
class Layout:
    """Who is where; with `local` the first host is the launcher's own."""

    folder: Path
    hosts: tuple[tuple[int, ...], ...]
    wire: str
    local: bool
    secret: str

    @property
    def world(self) -> int:
        return sum(len(ranks) for ranks in self.hosts)

    def process_of(self, rank: int) -> str:
        for index, ranks in enumerate(self.hosts):
            if rank in ranks:
                return "launcher" if self.local and index == 0 else f"h{index}"
        raise ValueError(rank)

    def processes(self) -> list[str]:
        workers = [f"h{index}" for index in range(int(self.local), len(self.hosts))]
        return ["launcher", *workers]

    def command(self, process: str) -> list[str]:
        hosts = "/".join(",".join(map(str, ranks)) for ranks in self.hosts)
        local = "yes" if self.local else "no"
        words = [str(self.folder), hosts, self.wire, local, self.secret, process]
        return [sys.executable, __file__, *words]


class Service:
    """A started process, as the bench expects one."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.pid = self._process.pid
        self.exitcode: int | None = None

    def join(self, timeout: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.exitcode = self._process.wait(timeout)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._process.stdout.close()


def start_services(layout: Layout) -> dict[str, Service]:
    return {name: Service(layout.command(name)) for name in layout.processes()}


def make_layout(sizes: list[int], *, wire: str, local: bool) -> Layout:
    """Number the ranks of hosts of these sizes."""
    hosts, at = [], 0
    for size in sizes:
        hosts.append(tuple(range(at, at + size)))
        at += size
    folder = Path(tempfile.mkdtemp(prefix="flodl-bench-"))
    return Layout(folder, tuple(hosts), wire, local, folder.name)


def end_services(layout: Layout, services: dict[str, Service]) -> None:
    for service in services.values():
        service.end()
    shutil.rmtree(layout.folder, ignore_errors=True)


def connect(layout: Layout, rank: int, shapes: list[list[int]], generation: int) -> socket.socket:
    """Return a rank's DATA socket."""
    hello = json.dumps({"rank": rank, "shapes": shapes, "generation": generation}).encode() + b"\n"
    process = layout.process_of(rank)
    if rank == 0 and process != "launcher":
        with _dial(layout.folder / "launcher") as herald:
            herald.sendall(hello)
    sock = _dial(layout.folder / process)
    sock.sendall(hello)
    return sock


def _dial(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(str(path))
    return sock


def envelope_of(layout: Layout, geometry: Geometry) -> Envelope:
    spec = RunSpec(
        run_id=RunId("0123456789abcdef"),
        mode=Mode.CPU_SYNC,
        job=JobRef(kind="recipe", name="bench", args={}),
        n_samples=1,
        batch_size=1,
        epochs=1,
        epoch_splits=1,
        seed=0,
        gamma=1.0,
        wire_dtype=layout.wire,
        heartbeat_interval_s=1.0,
        heartbeat_timeout_s=30.0,
        progress_timeout_s=300.0,
        stall_timeout_s=300.0,
        rendezvous_timeout_s=120.0,
        save_path="",
    )
    rosters = tuple(
        HostRanks(
            host=HostName(f"h{index}"),
            ranks=tuple(Rank(rank) for rank in ranks),
            devices=("cpu:0",) * len(ranks),
        )
        for index, ranks in enumerate(layout.hosts)
    )
    return Envelope(
        spec=spec,
        world_size=layout.world,
        hosts=rosters,
        geometry=geometry,
        model_sig="",
        layout_sig="",
        dataset_sig="",
        same_layout=True,
        controller="127.0.0.1:1",
    )


def geometry_of(shapes: list[list[int]]) -> Geometry:
    """One contiguous f32 parameter a shape, as an `nn.ParameterList` of them has it."""
    segments, at = [], 0
    for index, shape in enumerate(shapes):
        numel, strides = 1, []
        for size in reversed(shape):
            strides.insert(0, numel)
            numel *= size
        view = View(name=str(index), shape=tuple(shape), strides=tuple(strides), storage_offset=0)
        segments.append(
            Segment(
                name=str(index),
                dtype="float32",
                shape=tuple(shape),
                offset=at,
                numel=numel,
                trainable=True,
                views=(view,),
            )
        )
        at += -(-numel // ALIGN) * ALIGN
    return Geometry(params=tuple(segments), params_numel=at, buffers=(), buffers_numel=0, locals=())


class _HostDesk:
    """Takes the ranks of one host, one model after the other."""

    def __init__(self, layout: Layout, process: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(layout.folder / process))
        self._listener.listen(64)

    def gather(self, ranks: set[int]) -> tuple[Geometry, int, dict[Rank, socket.socket]]:
        """Wait for the ranks; for none, wait for word of the model."""
        socks: dict[Rank, socket.socket] = {}
        while True:
            sock, _ = self._listener.accept()
            hello = json.loads(_read_line(sock))
            if ranks:
                socks[Rank(hello["rank"])] = sock
            else:
                sock.close()
            if len(socks) == len(ranks):
                return geometry_of(hello["shapes"]), hello["generation"], socks


def _read_line(sock: socket.socket) -> bytes:
    """Read up to a newline and not a byte further: frames follow."""
    line = b""
    while not line.endswith(b"\n"):
        got = sock.recv(1)
        if not got:
            raise EOFError("the other end closed before it said who it is")
        line += got
    return line.rstrip()


class _RootEnd:
    """A host's link at the root; the root's callbacks with its name."""

    def __init__(self, root: StarRoot, host: HostName, gone: threading.Semaphore) -> None:
        self._root, self._host, self._gone = root, host, gone

    def on_message(self, message: object) -> None:
        raise AssertionError(message)

    def on_bucket_begin(self, frame: BucketFrame) -> memoryview:
        return self._root.on_bucket_begin(self._host, frame)

    def on_bucket(self, frame: BucketFrame) -> None:
        self._root.on_bucket(self._host, frame)

    def on_closed(self, error: Exception | None) -> None:
        self._root.drop_host(self._host)
        self._gone.release()


class _RelayEnd:
    """A relay's link; bound once the relay exists."""

    star: StarRelay

    def on_message(self, message: object) -> None:
        assert self.star.on_message(message)

    def on_bucket_begin(self, frame: BucketFrame) -> memoryview:
        return self.star.on_bucket_begin(frame)

    def on_bucket(self, frame: BucketFrame) -> None:
        self.star.on_bucket(frame)

    def on_closed(self, error: Exception | None) -> None:
        self.star.on_link_closed(f"closed: {error}")


def _mux(
    sock: socket.socket, layout: Layout, generation: int, host: str, *, is_root: bool
) -> MuxEnd:
    """The end of a mux connection whose keys both sides derive from the layout's secret."""

    def key(direction: str, kind: str, size: int) -> bytes:
        text = f"{layout.secret} {generation} {host} {direction} {kind}"
        return hashlib.sha256(text.encode()).digest()[:size]

    mine, other = ("down", "up") if is_root else ("up", "down")
    keys = SessionKeys(
        send_hmac=key(mine, "hmac", 32),
        receive_hmac=key(other, "hmac", 32),
        send_gcm=key(mine, "gcm", 16),
        receive_gcm=key(other, "gcm", 16),
    )
    tcp.tune(sock)
    return MuxEnd(sock=sock, keys=keys, peer=peer_of(sock.getpeername()))


def serve_launcher(layout: Layout) -> None:
    desk = _HostDesk(layout, "launcher")
    own = set(layout.hosts[0]) if layout.local else set()
    workers = len(layout.hosts) - int(layout.local)
    with socket.create_server(("127.0.0.1", 0)) as server:
        (layout.folder / "port").write_text(str(server.getsockname()[1]))
        print("up", flush=True)
        while True:
            geometry, generation, socks = desk.gather(own)
            root = StarRoot(
                envelope_of(layout, geometry),
                socks,
                lambda _: None,
                on_failed=lambda error: print("root failed", repr(error), file=sys.stderr),
            )
            gone = threading.Semaphore(0)
            links = []
            for _ in range(workers):
                sock, _ = server.accept()
                host = HostName(_read_line(sock).decode())
                end = _mux(sock, layout, generation, host, is_root=True)
                link = MuxLink(end, _RootEnd(root, host, gone), label=f"mux {host}")
                root.attach_host(host, link)
                link.start()
                links.append(link)
            for _ in range(workers):
                gone.acquire()
            root.stop()
            for link in links:
                link.close()


def serve_relay(layout: Layout, process: str) -> None:
    desk = _HostDesk(layout, process)
    ranks = set(layout.hosts[int(process[1:])])
    print("up", flush=True)
    while True:
        geometry, generation, socks = desk.gather(ranks)
        port = int((layout.folder / "port").read_text())
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(f"{process}\n".encode())
        end = _RelayEnd()
        link = MuxLink(_mux(sock, layout, generation, process, is_root=False), end)
        ended = threading.Event()
        end.star = StarRelay(
            envelope_of(layout, geometry),
            HostName(process),
            socks,
            link,
            on_ended=lambda reason, error, ended=ended: ended.set(),
        )
        link.start()
        ended.wait()
        link.close()
        end.star.stop()


def main() -> None:
    folder, hosts, wire, local, secret, process = sys.argv[1:]
    layout = Layout(
        Path(folder),
        tuple(tuple(map(int, ranks.split(","))) for ranks in hosts.split("/")),
        wire,
        local == "yes",
        secret,
    )
    if process == "launcher":
        serve_launcher(layout)
    else:
        serve_relay(layout, process)


if __name__ == "__main__":
    main()
