"""A whole data plane in one process: root, relays, rank clients, real memory and sockets."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from planes_links import Late, fake_pair, mux_pair
from planes_wire import Wire, wired_pair

from flodl_core.coordinator.events import RoundEnded
from flodl_core.ids import Cycle, HostName, Mode, Rank, Round, RunId
from flodl_core.messages.data import BucketFrame, RankTally, RoundEnd
from flodl_core.messages.job import (
    Envelope,
    Geometry,
    HostRanks,
    JobRef,
    OuterSpec,
    RunSpec,
    Segment,
    View,
)
from flodl_core.net.local import socket_pair
from flodl_core.planes.consensus import Beginning
from flodl_core.planes.slot import SlotHeader
from flodl_core.planes.star_client import StarClient
from flodl_core.planes.star_relay import StarRelay
from flodl_core.planes.star_root import StarRoot
from flodl_core.reduce.mass import gamma_mass, mover_mass

WAIT_S = 20.0


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again until it holds, yielding in between; fails after WAIT_S."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.002)):
        if condition():
            return
        pause.wait(0.002)
    raise AssertionError("it did not come about in time")


def segments(*sizes: int, frozen: Sequence[int] = ()) -> tuple[tuple[Segment, ...], int]:
    """Segments of these sizes in values, each at a multiple of 16, and the region's length."""
    made, at = [], 0
    for index, size in enumerate(sizes):
        view = View(name=f"t{index}", shape=(size,), strides=(1,), storage_offset=0)
        made.append(
            Segment(
                name=f"t{index}",
                dtype="float32",
                shape=(size,),
                offset=at,
                numel=size,
                trainable=index not in frozen,
                views=(view,),
            )
        )
        at += -(-size // 16) * 16
    return tuple(made), at


def geometry_of(
    params: Sequence[int], buffers: Sequence[int] = (), frozen: Sequence[int] = ()
) -> Geometry:
    param_segments, params_numel = segments(*params, frozen=frozen)
    buffer_segments, buffers_numel = segments(*buffers)
    return Geometry(
        params=param_segments,
        params_numel=params_numel,
        buffers=buffer_segments,
        buffers_numel=buffers_numel,
        locals=(),
    )


def padding_of(parts: Sequence[Segment], numel: int) -> np.ndarray:
    """Where a region belongs to no segment."""
    padding = np.ones(numel, bool)
    for part in parts:
        padding[part.offset : part.offset + part.numel] = False
    return padding


def envelope_of(geometry: Geometry, hosts: Sequence[Sequence[int]], wire: str = "f32") -> Envelope:
    spec = RunSpec(
        run_id=RunId("0123456789abcdef"),
        mode=Mode.CPU_SYNC,
        job=JobRef(kind="recipe", name="synthetic", args={}),
        n_samples=100,
        batch_size=1,
        epochs=1,
        epoch_splits=1,
        seed=0,
        gamma=1.0,
        wire_dtype=wire,
        heartbeat_interval_s=1.0,
        heartbeat_timeout_s=30.0,
        progress_timeout_s=300.0,
        stall_timeout_s=300.0,
        rendezvous_timeout_s=120.0,
        save_path="",
    )
    return Envelope(
        spec=spec,
        world_size=sum(len(ranks) for ranks in hosts),
        hosts=tuple(
            HostRanks(
                host=HostName(f"h{index}"),
                ranks=tuple(Rank(rank) for rank in ranks),
                devices=("cpu:0",) * len(ranks),
            )
            for index, ranks in enumerate(hosts)
        ),
        geometry=geometry,
        model_sig="",
        layout_sig="",
        dataset_sig="",
        same_layout=True,
        controller="127.0.0.1:1",
    )


@dataclass
class Work:
    """What one rank brings to a cycle; None leaves the slot's values as they are."""

    n: int = 1
    params: np.ndarray | float | None = None
    buffers: np.ndarray | float | None = None
    samples: int = 1
    declared: bool = False
    unfrozen: Sequence[bool] | None = None


@dataclass
class Adopted:
    """What a cycle brought to one rank."""

    ends: dict[Round, RoundEnd]
    params: np.ndarray
    buffers: np.ndarray
    tallies: tuple[RankTally, ...]
    spans: tuple


class _RootCallbacks:
    def __init__(self, world: "World", host: HostName) -> None:
        self.world, self.host = world, host

    def on_message(self, message: object) -> None:
        self.world.messages.append((self.host, message))

    def on_bucket_begin(self, frame: BucketFrame) -> memoryview:
        return self.world.root.on_bucket_begin(self.host, frame)

    def on_bucket(self, frame: BucketFrame) -> None:
        self.world.root.on_bucket(self.host, frame)

    def on_closed(self, error: Exception | None) -> None:
        self.world.closed[self.host] = error
        self.world.root.drop_host(self.host)


class _RelayCallbacks:
    def __init__(self, relay: StarRelay) -> None:
        self.relay = relay
        self.on_bucket_begin = relay.on_bucket_begin
        self.on_bucket = relay.on_bucket

    def on_message(self, message: object) -> None:
        assert self.relay.on_message(message)

    def on_closed(self, error: Exception | None) -> None:
        self.relay.on_link_closed(f"closed: {error}")


@dataclass
class World:
    """`hosts` lists the ranks of each host; with `local`, the first is the launcher's."""

    geometry: Geometry
    hosts: Sequence[Sequence[int]]
    local: bool = True
    link: str = "fake"
    wire: str = "f32"
    on_round_ended: Callable[[RoundEnded], None] | None = None
    beginning: Beginning | None = None
    outer: OuterSpec | None = None
    mode: Mode = Mode.CPU_SYNC
    ended: list[RoundEnded] = field(default_factory=list)
    notes: list = field(default_factory=list)
    messages: list = field(default_factory=list)
    closed: dict = field(default_factory=dict)
    relay_ends: dict = field(default_factory=dict)
    failures: list = field(default_factory=list)

    def __post_init__(self) -> None:
        plain = envelope_of(self.geometry, self.hosts, self.wire)
        spec = replace(plain.spec, outer=self.outer, mode=self.mode)
        self.envelope = replace(plain, spec=spec)
        self.world_size = self.envelope.world_size
        rank_ends, host_ends = {}, {}
        for rank in range(self.world_size):
            host_ends[rank], rank_ends[rank] = socket_pair()
        own = set(self.hosts[0]) if self.local else set()
        self.root = StarRoot(
            self.envelope,
            {Rank(rank): host_ends[rank] for rank in own},
            self._round_ended,
            on_failed=self.failures.append,
            on_note=self.notes.append,
            beginning=self.beginning,
        )
        self.relays: dict[HostName, StarRelay] = {}
        self.links = {}
        self.wires: dict[HostName, Wire] = {}
        for roster in self.envelope.hosts[1 if self.local else 0 :]:
            self._add_relay(roster, {rank: host_ends[rank] for rank in roster.ranks})
        self.clients = {
            rank: StarClient(rank_ends[rank], self.geometry, Rank(rank), self.world_size)
            for rank in range(self.world_size)
        }

    def _add_relay(self, roster: HostRanks, socks: Mapping) -> None:
        near, far = Late(), Late()
        if self.link == "wired":
            root_link, relay_link, self.wires[roster.host] = wired_pair(near, far)
        else:
            root_link, relay_link = (fake_pair if self.link == "fake" else mux_pair)(near, far)
        near.bind(_RootCallbacks(self, roster.host))
        relay = StarRelay(
            self.envelope,
            roster.host,
            socks,
            relay_link,
            on_ended=lambda reason, error: self.relay_ends.__setitem__(
                roster.host, (reason, error)
            ),
            on_note=self.notes.append,
        )
        far.bind(_RelayCallbacks(relay))
        self.root.attach_host(roster.host, root_link)
        self.relays[roster.host] = relay
        self.links[roster.host] = (root_link, relay_link)
        root_link.start()
        relay_link.start()

    def _round_ended(self, ended: RoundEnded) -> None:
        self.ended.append(ended)
        if self.on_round_ended is not None:
            self.on_round_ended(ended)

    def ready(self, cycle: int, rank: int, work: Work, gamma: float = 1.0) -> None:
        """Write a rank's slot and give its mark."""
        client = self.clients[rank]
        shape = self.geometry
        if work.params is not None:
            client.slot.params[:] = work.params
            client.slot.params[padding_of(shape.params, shape.params_numel)] = 0
        if work.buffers is not None:
            client.slot.buffers[:] = work.buffers
            client.slot.buffers[padding_of(shape.buffers, shape.buffers_numel)] = 0
        flags = work.unfrozen or [one.trainable for one in self.geometry.params]
        client.slot.set_unfrozen(flags)
        n = 0 if work.declared else work.n
        client.slot.write_header(
            SlotHeader(
                cycle=Cycle(cycle),
                n=n,
                samples=work.samples,
                mass_params=gamma_mass(n, gamma),
                mass_buffers=mover_mass(n),
                declared=work.declared,
            )
        )
        client.ready(Cycle(cycle))

    def collect(self, cycle: int, rank: int) -> Adopted:
        """Take a rank through the rounds of the cycle."""
        client = self.clients[rank]
        ends: dict[Round, RoundEnd] = {}
        while True:
            end = client.wait_round(WAIT_S)
            assert end.cycle == cycle
            assert end.round not in ends
            ends[end.round] = end
            if client.ends_cycle(end):
                break
        return Adopted(
            ends=ends,
            params=client.staging.params.copy(),
            buffers=client.staging.buffers.copy(),
            tallies=client.tallies(),
            spans=client.active_spans(Cycle(cycle)),
        )

    def run(self, cycle: int, works: Mapping[int, Work], gamma: float = 1.0) -> dict[int, Adopted]:
        """One cycle of exactly these ranks."""
        for rank, work in works.items():
            self.ready(cycle, rank, work, gamma)
        return {rank: self.collect(cycle, rank) for rank in works}

    def leave(self, rank: int) -> None:
        """A rank's process ends: its sockets close."""
        self.clients.pop(rank).close()

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        for relay in self.relays.values():
            relay.stop()
        self.root.stop()
        for pair in self.links.values():
            for link in pair:
                link.close()
        for wire in self.wires.values():
            wire.close()
        assert not self.failures, self.failures
