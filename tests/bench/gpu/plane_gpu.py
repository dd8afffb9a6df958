"""The NCCL plane on real GPUs: right values, the stall beside a bare all-reduce, a death.

    python tests/bench/gpu/plane_gpu.py --ranks 2
    python tests/bench/gpu/plane_gpu.py --ranks 2 --loopback     the same, without a GPU

One process a GPU, driven over pipes by this one, which plays the coordinator. It prints
one JSON object a line. `stall` is from the moment a rank's training stream is idle to the
moment its parameters are the consensus and the stream may go on; `held_stall` is the same
for a rank that has looked at its values while it waited for the call, as ranks do in a
run; `bare` is a flat all-reduce of as many values with the same communicator, alone and in
a row. `steps` says where the time of a held stall goes, from mark to mark.
"""

import argparse
import json
import multiprocessing as mp
import os
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

from flodl_core.ids import Rank, Session
from flodl_core.messages.control import DeclareDead, NewNcclSession, RequestNewNcclId
from flodl_core.messages.timing import NewNcclIdGenerated
from flodl_core.net import clock
from flodl_core.planes.nccl.collective import Fabric
from flodl_core.planes.nccl.cycle import CollectiveCycle
from flodl_core.planes.nccl.parts import RankRegions
from flodl_core.planes.nccl.trace import CollectiveTrace
from flodl_core.planes.nccl.waiting import looks

SIZES = {"ResNet-18, 11.7 M": 11_689_512, "GPT, 124 M": 124_439_808, "1.3 B": 1_300_000_000}
SMALL = {"1 M": 1_000_000}
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

    def average(self, n: int) -> float | None:
        """Run one cycle; return its divergence."""
        self.cycle += 1
        end = self.member.average(n, cycle=self.cycle)
        return end.divergence.divergence if end.divergence else None

    def right(self, numel: int) -> dict[str, Any]:
        """Average once and compare with the same mean in f64."""
        self.resize(numel)
        device, counts = self.fabric.device, [1 + 2 * rank for rank in range(self.size)]
        self.average(counts[self.rank])
        found = self.member.regions.params[:numel]
        exact = torch.zeros(numel, dtype=torch.float64, device=device)
        spread = torch.zeros_like(exact)
        for rank, count in enumerate(counts):
            values = torch.empty(self.member.regions.params.numel(), device=device)
            values.normal_(generator=torch.Generator(device).manual_seed(1000 + rank))
            exact += count * values[:numel].double()
            spread += count * values[:numel].double().abs()
        exact /= sum(counts)
        bound = (self.size + 4) * 2.0**-24 * spread / sum(counts) + 2.0**-149 * 2
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
            self.member.cycles._adopter._kernels = None
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
            "fused": self.member.cycles._adopter.is_fused,
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

    def survive(self) -> dict[str, Any]:
        """Average with a peer that dies in it; return what is left."""
        before = self.member.regions.params.clone()
        began = clock.now()
        try:
            self.average(1)
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

    return DeviceFabric(torch.device("cuda", rank))


def serve(rank: int, size: int, conn: Connection, loopback: bool) -> None:
    """Run one rank's process: messages are heeded at once, calls are answered in turn."""
    rig = Rig(rank, size, conn, loopback=loopback)
    import queue

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


class Cohort:
    """The ranks' processes, and their coordinator."""

    def __init__(self, size: int, *, loopback: bool) -> None:
        context = mp.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(rank, size, theirs, loopback))
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        self.alive = list(range(size))
        self.pipes[0].send(("uid",))
        uid = self.pipes[0].recv()
        for pipe in self.pipes:
            pipe.send(("first", uid))

    def call(self, name: str, *words: Any, **named: Any) -> list[Any]:
        """Have every living rank do the same; return what each says."""
        for rank in self.alive:
            self.pipes[rank].send((name, words, named))
        return [self.pipes[rank].recv() for rank in self.alive]

    def heed(self, message: object, rank: int) -> None:
        """Give a rank a message of the coordinator."""
        self.pipes[rank].send(("heed", message))

    def reform(self, session: int) -> None:
        """Form a session of the living."""
        for rank in self.alive:
            makes_uid = rank == self.alive[0]
            self.heed(RequestNewNcclId(session=Session(session), makes_uid=makes_uid), rank)
        uid = b""
        for rank in self.alive:
            self.pipes[rank].send(("answer", session))
            answer: NewNcclIdGenerated = self.pipes[rank].recv()
            uid = uid or answer.uid
        for place, rank in enumerate(self.alive):
            self.heed(
                NewNcclSession(
                    session=Session(session),
                    uid=uid,
                    new_rank=Rank(place),
                    new_world_size=len(self.alive),
                ),
                rank,
            )

    def end(self) -> None:
        """End every process."""
        for rank in self.alive:
            self.pipes[rank].send(("end", (), {}))
        for process in self.processes:
            process.join(10)


def tell(what: str, said: object) -> None:
    """Print one line."""
    print(json.dumps({"what": what, "said": said}), flush=True)


def main() -> None:
    """Run everything."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--ranks", type=int, default=2)
    arguments.add_argument("--loopback", action="store_true")
    arguments.add_argument("--deaths", type=int, default=0, help="that many deaths, nothing else")
    given = arguments.parse_args()
    for number in range(given.deaths):
        die(given.ranks, ("COUNT", "PARAM")[number % 2], loopback=given.loopback)
    if given.deaths:
        return
    cohort = Cohort(given.ranks, loopback=given.loopback)
    sizes = SMALL if given.loopback else SIZES
    began = clock.now()
    tell("right", cohort.call("right", 200_000 if given.loopback else 5_000_000))
    tell("first cycle, with forming, s", clock.now() - began)
    for name, numel in sizes.items():
        tell(name, cohort.call("stalls", numel)[0])
    tell(
        "unfused",
        cohort.call("stalls", list(sizes.values())[min(1, len(sizes) - 1)], fused=False)[0],
    )
    began = clock.now()
    cohort.reform(1)
    cohort.call("reform_ms", 1)
    tell("aborted and formed anew by the same ranks, s", clock.now() - began)
    tell("right in the new session", cohort.call("right", 100_000))
    lose_one(cohort, "PARAM", session=2)
    cohort.end()


def die(ranks: int, name: str, *, loopback: bool) -> None:
    """Have one of a fresh cohort killed inside a collective."""
    cohort = Cohort(ranks, loopback=loopback)
    cohort.call("right", 200_000 if loopback else 20_000_000)
    lose_one(cohort, name, session=1)
    cohort.end()


def lose_one(cohort: Cohort, name: str, *, session: int) -> None:
    """Kill the last rank as it enters that collective; the others form a session and average."""
    victim = cohort.alive[-1]
    cohort.pipes[victim].send(("die_in", (name,), {}))
    cohort.pipes[victim].recv()
    for rank in cohort.alive:
        cohort.pipes[rank].send(("survive", (), {}))
    cohort.processes[victim].join(30)
    died = clock.now()
    cohort.alive.remove(victim)
    for rank in cohort.alive:
        cohort.heed(DeclareDead(rank=Rank(victim)), rank)
    survivors = [cohort.pipes[rank].recv() for rank in cohort.alive]
    cohort.reform(session)
    cohort.call("reform_ms", session)
    cohort.call("average", 1)
    tell(f"killed in {name}", {"survivors": survivors, "next_average_s": clock.now() - died})


if __name__ == "__main__":
    main()
