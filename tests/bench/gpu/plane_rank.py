"""One rank of `plane_gpu`: a process that is driven over a pipe.

Messages are heeded as they come, calls are answered in turn.
"""

import os
import queue
import signal
import statistics
import sys
import threading
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "planes"))

from nccl_rig import Member
from planes_world import geometry_of

from flodl_core.ids import Rank
from flodl_core.net import clock
from flodl_core.planes.nccl.collective import Fabric
from flodl_core.planes.nccl.cycle import CollectiveCycle
from flodl_core.planes.nccl.parts import RankRegions
from flodl_core.planes.nccl.trace import CollectiveTrace
from flodl_core.planes.nccl.waiting import looks

REPEATS = 20


class Rig:
    """One rank's process."""

    def __init__(self, rank: int, size: int, conn: Connection, *, loopback: bool) -> None:
        self.rank, self.size, self.conn = rank, size, conn
        self.fabric = make_fabric(rank, loopback=loopback)
        self.member = Member(rank, size, self.fabric, geometry_of((64,)))
        self.cycle = 0
        self.marks: list[tuple[str, float]] = []

    def settle(self) -> None:
        """Wait for the device, and for the others."""
        formed = self.member.formed()
        ones = torch.ones(1, device=self.fabric.device)
        with formed.using() as comm, self.fabric.syncing():
            comm.sum_plain(ones)
        mark = self.fabric.mark()
        for _ in looks():
            if mark.is_done():
                return

    def resize(self, numel: int) -> int:
        """Give the member a model of that many parameters; return the bytes that it takes more."""
        self.member.regions = None  # type: ignore[assignment]
        self.member.cycles = None  # type: ignore[assignment]
        device = self.fabric.device
        is_gpu = device.type == "cuda"
        if is_gpu:
            torch.cuda.empty_cache()
        geometry = geometry_of((numel,))
        params = torch.empty(geometry.params_numel, device=device)
        params.normal_(generator=torch.Generator(device).manual_seed(1000 + self.rank))
        params[numel:] = 0.0
        before = torch.cuda.memory_allocated(device) if is_gpu else 0
        empty = torch.zeros(0, device=device)
        kept = torch.zeros_like(params)
        self.member.regions = RankRegions(params, empty, kept, empty.clone())
        self.member.geometry = geometry
        self.member.cycles = CollectiveCycle(
            geometry=geometry,
            regions=self.member.regions,
            rank=Rank(self.rank),
            world_size=self.size,
            fabric=self.fabric,
            keeper=self.member.keeper,
            trace=CollectiveTrace(lambda what, where: self.note(f"{what} {where.split(' ')[0]}")),
            on_counted=lambda _: self.note("counted"),
        )
        return (torch.cuda.memory_allocated(device) if is_gpu else 0) - before

    def note(self, mark: str) -> None:
        """Remember when something happened in a cycle."""
        self.marks.append((mark, clock.now()))

    def average(self, n: int, *, looked: bool = False) -> float | None:
        """Run one cycle; return its divergence.

        Args:
            n: batches of this rank.
            looked: whether it has looked at its values before.
        """
        self.cycle += 1
        if looked:
            self.member.cycles.prepare()
            if self.fabric.device.type == "cuda":
                torch.cuda.synchronize()
        end = self.member.average(n, cycle=self.cycle)
        return end.divergence.divergence if end.divergence else None

    def right(
        self, numel: int, alive: list[int] | None = None, *, looked: bool = False
    ) -> dict[str, Any]:
        """Average once and compare with the same mean in f64.

        Args:
            numel: parameters.
            alive: ranks that take part; all if not said.
            looked: whether this rank has looked at its values before.
        """
        self.resize(numel)
        device = self.fabric.device
        counts = {rank: 1 + 2 * rank for rank in alive or range(self.size)}
        self.average(counts[self.rank], looked=looked)
        found = self.member.regions.params[:numel]
        exact = torch.zeros(numel, dtype=torch.float64, device=device)
        spread = torch.zeros_like(exact)
        for rank, count in counts.items():
            values = torch.empty(self.member.regions.params.numel(), device=device)
            values.normal_(generator=torch.Generator(device).manual_seed(1000 + rank))
            exact += count * values[:numel].double()
            spread += count * values[:numel].double().abs()
        total = sum(counts.values())
        exact /= total
        bound = (len(counts) + 4) * 2.0**-24 * spread / total + 2.0**-149 * 2
        apart = (found.double() - exact).abs()
        return {
            "inside_bound": bool((apart <= bound).all()),
            "relative": float(apart.norm() / exact.norm()),
            "bits": int(found.view(torch.int32).to(torch.int64).sum()),
        }

    def stalls(self, numel: int, *, fused: bool = True) -> dict[str, Any]:
        """Time cycles, and bare all-reduces of the same size."""
        extra = self.resize(numel)
        if not fused:
            self.member.cycles._adoption._adopter._kernels = None
        for _ in range(3):
            self.average(1)
        found: dict[str, list[float]] = {"stall": [], "held": [], "bare": []}
        steps: dict[str, list[float]] = {}
        for turn in range(2 * REPEATS):
            is_held = turn % 2 == 1
            if is_held:
                self.member.cycles.prepare()
            self.settle()
            self.marks = [("begin", clock.now())]
            self.average(1)
            self.note("adopted")
            if self.fabric.device.type == "cuda":
                torch.cuda.synchronize()
            self.note("end")
            spent = (self.marks[-1][1] - self.marks[0][1]) * 1e3
            found["held" if is_held else "stall"].append(spent)
            found["bare"].append(self.bare(1))
            for (before, since), (after, until) in pairwise(self.marks if is_held else ()):
                steps.setdefault(f"{before} > {after}", []).append((until - since) * 1e3)
        return {
            "stall_ms": statistics.median(found["stall"]),
            "held_stall_ms": statistics.median(found["held"]),
            "bare_ms": statistics.median(found["bare"]),
            "steps_ms": {name: round(statistics.median(all_), 4) for name, all_ in steps.items()},
            "bare_in_a_row_ms": self.bare(REPEATS),
            "extra_bytes": extra,
            "params_bytes": 4 * numel,
            "fused": self.member.cycles._adoption._adopter.is_fused,
            "why_not": self.member.cycles.why_not_fused,
        }

    def bare(self, times: int) -> float:
        """Return the milliseconds of one all-reduce among so many in a row."""
        regions = self.member.regions
        self.settle()
        began = clock.now()
        for _ in range(times):
            with self.member.formed().using() as comm, self.fabric.syncing():
                comm.sum_scaled([(regions.params, regions.kept_params)], 1.0 / self.size)
        mark = self.fabric.mark()
        for _ in looks():
            if mark.is_done():
                break
        return (clock.now() - began) * 1e3 / times

    def die_in(self, name: str) -> None:
        """Have this process killed when it enters that collective."""

        def record(what: str, where: str) -> None:
            if what == "ENTER" and where.startswith(name):
                os.kill(os.getpid(), signal.SIGKILL)

        self.member.cycles.trace._record = record

    def survive(self, *, looked: bool) -> dict[str, Any]:
        """Average with a peer that dies in it; return what is left."""
        before = self.member.regions.params.clone()
        began = clock.now()
        try:
            self.average(1, looked=looked)
        except Exception as error:
            kept = bool(torch.equal(before, self.member.regions.params))
            return {"broke_ms": (clock.now() - began) * 1e3, "kept": kept, "error": str(error)}
        return {"error": "it did not break"}

    def reform_ms(self, session: int) -> float:
        """Wait until that session is usable; return for how long."""
        began = clock.now()
        for _ in looks():
            formed = self.member.keeper.usable
            if formed is not None and formed.session >= session:
                return (clock.now() - began) * 1e3
        return -1.0


def make_fabric(rank: int, *, loopback: bool) -> Fabric:
    """Return the fabric of a rank."""
    if loopback:
        from flodl_core.planes.nccl.loopback import LoopbackFabric

        return LoopbackFabric()
    from flodl_core.planes.nccl.device import DeviceFabric

    return DeviceFabric(torch.device("cuda", rank % torch.cuda.device_count()))


def crowd(rank: int, ranks: int) -> None:
    """Have NCCL take ranks that share a GPU for hosts: it takes a GPU once a host."""
    if ranks > torch.cuda.device_count():
        os.environ.update(NCCL_HOSTID=f"host-of-{rank}", NCCL_SOCKET_IFNAME="lo")


def serve(rank: int, size: int, conn: Connection, loopback: bool) -> None:
    """Run one rank's process: messages are heeded at once, calls are answered in turn."""
    if not loopback:
        crowd(rank, size)
    rig = Rig(rank, size, conn, loopback=loopback)
    calls: queue.SimpleQueue[tuple[str, tuple[Any, ...], dict[str, Any]]] = queue.SimpleQueue()

    def listen() -> None:
        while True:
            what, *rest = conn.recv()
            if what == "heed":
                rig.member.keeper.heed(rest[0])
            elif what == "uid":
                conn.send(rig.member.keeper.new_uid())
            elif what == "first":
                rig.member.keeper.form_first(rest[0], size=size)
            elif what == "answer":
                conn.send(rig.member.answer_of(rest[0]))
            else:
                calls.put((what, rest[0], rest[1]))

    threading.Thread(target=listen, daemon=True).start()
    while True:
        name, words, named = calls.get()
        if name == "end":
            os._exit(0)
        try:
            conn.send(getattr(rig, name)(*words, **named))
        except Exception as error:
            conn.send({"failed": f"{type(error).__name__}: {error}"})
