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
from typing import Any

from plane_rank import serve

from flodl_core.ids import Rank, Session
from flodl_core.messages.control import DeclareDead, NewNcclSession, RequestNewNcclId
from flodl_core.messages.timing import NewNcclIdGenerated
from flodl_core.net import clock

SIZES = {"ResNet-18, 11.7 M": 11_689_512, "GPT, 124 M": 124_439_808, "1.3 B": 1_300_000_000}
SMALL = {"1 M": 1_000_000}
WHERE = ("COUNT", "COMPUTE", "PARAM", "COMPUTE")
"""Where deaths come: inside a collective as often as outside."""

DEAD_NUMEL = 200_000
AVERAGES_BEFORE = 4
"""Of the regions that a death then finds: what is repeated in them has been recorded."""


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
        name, looked = WHERE[number // 2 % len(WHERE)], number % 2 == 1
        die(given.ranks, name, looked=looked, loopback=given.loopback)
    if given.deaths:
        return
    cohort = Cohort(given.ranks, loopback=given.loopback)
    sizes = SMALL if given.loopback else SIZES
    began = clock.now()
    numel = 200_000 if given.loopback else 5_000_000
    for looked in (False, True):
        tell(f"right, looked {looked}", cohort.call("right", numel, looked=looked))
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
    lose_one(cohort, "PARAM", session=2, looked=True)
    cohort.end()


def die(ranks: int, name: str, *, looked: bool, loopback: bool) -> None:
    """Have ranks of a fresh cohort killed one by one, until one is left."""
    cohort = Cohort(ranks, loopback=loopback)
    cohort.call("right", DEAD_NUMEL)
    for session in range(1, ranks):
        lose_one(cohort, name, session=session, looked=looked)
    cohort.end()


def lose_one(cohort: Cohort, name: str, *, session: int, looked: bool) -> None:
    """Kill the last rank as it enters that collective; the others form a session and average."""
    victim = cohort.alive[-1]
    for _ in range(AVERAGES_BEFORE):
        cohort.call("average", 1, looked=looked)
    if name == "COMPUTE":
        cohort.processes[victim].kill()
        cohort.alive.remove(victim)
    else:
        cohort.pipes[victim].send(("die_in", (name,), {}))
        cohort.pipes[victim].recv()
    for rank in cohort.alive:
        cohort.pipes[rank].send(("survive", (), {"looked": looked}))
    cohort.processes[victim].join(30)
    died = clock.now()
    cohort.alive = [rank for rank in cohort.alive if rank != victim]
    for rank in cohort.alive:
        cohort.heed(DeclareDead(rank=Rank(victim)), rank)
    survivors = [cohort.pipes[rank].recv() for rank in cohort.alive]
    cohort.reform(session)
    cohort.call("reform_ms", session)
    formed = clock.now() - died
    found = cohort.call("right", DEAD_NUMEL, cohort.alive)
    said = {
        "left": len(cohort.alive),
        "kept": all(one.get("kept") for one in survivors),
        "failed": [one["failed"] for one in survivors if "failed" in one],
        "formed_s": formed,
        "next_average_s": clock.now() - died,
        "right": all(one["inside_bound"] for one in found),
        "same_bits": len({one["bits"] for one in found}) == 1,
    }
    tell(f"killed in {name}, looked {looked}", said)


if __name__ == "__main__":
    main()
