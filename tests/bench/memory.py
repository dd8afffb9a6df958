"""What the data plane holds in memory, for worlds of 2 to 16 ranks.

    python tests/bench/memory.py [--mb 100] [--worlds 2,4,8,16] [--wire f32] [--cycles 3]

Half of the ranks are the launcher's own, half sit behind one relay; launcher, relay and
ranks are processes without torch. Figures are kernel counts after the last cycle, in
multiples of the model:

- `rss`: resident pages, shared ones counted in full in every process that touched them;
- `own`: what the process keeps in memory itself: its private pages, and of shared segments
  those that it made (launcher: both sides of the consensus; relay: one side; rank: its slot);
- `beside`: of `own`, what is no segment: code, stacks, kept buffers.

A slot is mapped by whoever folds it and made by its rank, so the memory of a host is the
`own` of its relay (or launcher) plus one slot a rank.
"""

import argparse
import json
import multiprocessing
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from plane_services import connect, end_services, geometry_of, make_layout, start_services

from flodl_core.ids import Cycle, Rank
from flodl_core.planes.slot import SlotHeader
from flodl_core.planes.star_client import StarClient

MADE_BY = {"launcher": "flodl-staging", "relay": "flodl-staging", "rank": "flodl-slot"}
"""The segment that each kind of process makes; it maps others' too."""

WAIT_S = 120.0


def run_rank(layout: object, rank: int, numel: int, cycles: int, pipe: Connection) -> None:
    """One rank: its model lives in the slot; it adopts as a rank does."""
    shapes = [[numel]]
    star = StarClient(
        connect(layout, rank, shapes, 1), geometry_of(shapes), Rank(rank), layout.world
    )
    star.slot.params[:] = rank
    star.slot.set_unfrozen([True])
    for cycle in range(cycles):
        star.slot.write_header(
            SlotHeader(
                cycle=Cycle(cycle),
                n=rank + 1,
                samples=1,
                mass_params=rank + 1.0,
                mass_buffers=1.0,
                declared=False,
            )
        )
        star.ready(Cycle(cycle))
        while not star.ends_cycle(star.wait_round(WAIT_S)):
            pass
        star.slot.params[:] = star.staging.params
    pipe.send("done")
    pipe.recv()


def memory_of(pid: int, kind: str) -> dict[str, float]:
    """Bytes of one process, by /proc/PID/smaps."""
    name, total, made, private = "", 0, 0, 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            name = words[5] if len(words) > 5 else ""
        elif words[0] == "Rss:":
            size = int(words[1]) * 1024
            total += size
            if "flodl-" in name:
                made += size if MADE_BY[kind] in name else 0
            else:
                private += size
    return {"rss": total, "own": made + private, "beside": private}


def measure(world: int, numel: int, *, wire: str, cycles: int) -> dict[str, dict[str, float]]:
    """Run some cycles and return what each process holds; of the ranks, the largest."""
    layout = make_layout([world // 2, world - world // 2], wire=wire, local=True)
    services = start_services(layout)
    context = multiprocessing.get_context("spawn")
    ranks, pipes = [], []
    try:
        idle = {name: memory_of(one.pid, _kind(name)) for name, one in services.items()}
        for rank in range(world):
            near, far = context.Pipe()
            process = context.Process(
                target=run_rank, args=(layout, rank, numel, cycles, far), daemon=True
            )
            process.start()
            far.close()
            ranks.append(process)
            pipes.append(near)
        for pipe in pipes:
            if not pipe.poll(WAIT_S):
                raise TimeoutError("a rank did not finish its cycles")
            pipe.recv()
        found = {name: memory_of(one.pid, _kind(name)) for name, one in services.items()}
        for name, figures in found.items():
            figures["idle"] = idle[name]["rss"]
        held = [memory_of(process.pid, "rank") for process in ranks]
        found["rank"] = {key: max(one[key] for one in held) for key in held[0]}
        for pipe in pipes:
            pipe.send("end")
        for process in ranks:
            process.join(10)
        return found
    finally:
        for process in ranks:
            process.kill()
        end_services(layout, services)


def _kind(name: str) -> str:
    return "launcher" if name == "launcher" else "relay"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--mb", type=float, default=100.0, help="model size in 10^6 bytes of f32")
    parser.add_argument("--worlds", default="2,4,8,16")
    parser.add_argument("--wire", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    numel = int(options.mb * 1e6) // 4
    size = numel * 4
    result = {}
    print(
        f"model {size / 1e6:g} MB, wire {options.wire}; MB, and in brackets multiples of the model"
    )
    print(f"{'ranks':>5} {'process':9} {'rss':>16} {'own':>16} {'beside':>8} {'idle':>6}")
    for world in map(int, options.worlds.split(",")):
        found = result[world] = measure(world, numel, wire=options.wire, cycles=options.cycles)
        for name, figures in found.items():
            rss, own, beside = figures["rss"], figures["own"], figures["beside"]
            print(
                f"{world:5} {name:9} {rss / 1e6:8.1f} ({rss / size:4.2f}) "
                f"{own / 1e6:9.1f} ({own / size:4.2f}) {beside / 1e6:8.1f} "
                f"{figures.get('idle', 0) / 1e6:6.1f}",
                flush=True,
            )
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    sys.exit(main())
