"""How promptly a launcher answers while it reduces a big model: ticks, status, heartbeats, memory.

    python tests/bench/responsiveness.py --params 25000000 --hosts 2 --ranks-per-host 2

It starts one real run of the recipe `synthetic`, whose time goes into averaging,
reads `/state.json` without a pause meanwhile, and prints what it saw. It asserts
nothing: figures depend on the machine and on what else it does.
"""

import argparse
import json
import re
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "processes"))

from aftermath import logged
from harness import Launched
from process_table import Process

SAMPLE_EVERY_S = 0.01
MEMORY_EVERY_S = 0.25
F32_BYTES = 4


@dataclass
class Seen:
    """What was seen while ranks trained."""

    answers_ms: list[float] = field(default_factory=list)
    heartbeat_ages_s: list[float] = field(default_factory=list)
    sync_ms: list[float] = field(default_factory=list)
    memory_mb: dict[str, dict[str, float]] = field(default_factory=dict)
    """Process name to the highest of each kind of memory."""


def read_states(run: Launched, seen: Seen, over: threading.Event) -> None:
    """Read the status document again and again, each over a connection of its own."""
    url = f"http://{run.address}/state.json"
    with httpx.Client(trust_env=False, timeout=30) as client:
        while not over.wait(SAMPLE_EVERY_S):
            began = time.perf_counter()
            try:
                document = client.get(url).json()
            except httpx.HTTPError:
                return
            spent_ms = 1000 * (time.perf_counter() - began)
            training = document.get("training") or {}
            if document["phase"] != "training" or not training.get("global_step"):
                continue
            seen.answers_ms.append(spent_ms)
            ages = [row["heartbeat_age_s"] for row in document["ranks"]]
            seen.heartbeat_ages_s.append(max(age for age in ages if age is not None))
            last = document["reduce"]["last_sync_ms"]
            if last is not None and seen.sync_ms[-1:] != [last]:
                seen.sync_ms.append(last)


def watch_memory(run: Launched, seen: Seen, over: threading.Event) -> None:
    """Note the highest memory of every process without a device."""
    while not over.wait(MEMORY_EVERY_S):
        for name, process in run.processes().items():
            if not name.startswith(("rank", "inspector")):
                note_memory(process, seen.memory_mb.setdefault(name, {}))


def note_memory(process: Process, highest: dict[str, float]) -> None:
    try:
        for kind in ("VmRSS", "RssAnon", "RssFile", "RssShmem"):
            highest[kind] = max(highest.get(kind, 0.0), process.status_kb(kind) / 1024)
    except (OSError, AssertionError):
        return


def percentile(values: list[float], share: float) -> float:
    """The value below which that share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def describe(values: list[float], unit: str) -> str:
    if not values:
        return "nothing seen"
    shares = ", ".join(
        f"{name} {percentile(values, share):.1f}"
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    )
    return f"{shares} {unit} of {len(values)}"


def measure(arguments: argparse.Namespace, place: Path) -> int:
    """Run it and print what was seen."""
    world = arguments.hosts * arguments.ranks_per_host
    run = Launched(
        place,
        *("synthetic", "--hosts", str(arguments.hosts), "--epochs", "1"),
        *("--ranks-per-host", str(arguments.ranks_per_host)),
        *("--job-arg", f"params={arguments.params}", "--job-arg", "batch_size=1"),
        *("--job-arg", f"samples={world * arguments.cycles}", "--checkpoint-every-s", "0"),
    )
    seen, over = Seen(), threading.Event()
    watchers = [
        threading.Thread(target=watch, args=(run, seen, over))
        for watch in (read_states, watch_memory)
    ]
    try:
        run.until_phase("training")
        for watcher in watchers:
            watcher.start()
        code = run.finish(arguments.limit_s)
    finally:
        over.set()
        for watcher in watchers:
            if watcher.ident is not None:
                watcher.join()
        run.destroy()
    (ended,) = logged(run.directory, "launcher", "coordinator_ended")
    model_mb = arguments.params * F32_BYTES / 2**20
    ticks = dict(re.findall(r"(\w+)=([\d.]+)", ended))
    print(f"model       {model_mb:.0f} MiB, {world} ranks on {arguments.hosts} hosts, exit {code}")
    late = f"p99 {ticks['tick_p99_ms']}, max {ticks['tick_max_ms']} ms of {ticks['ticks']}"
    print(f"ticks       late {late}")
    print(f"state.json  {describe(seen.answers_ms, 'ms')}")
    print(f"heartbeats  {describe(seen.heartbeat_ages_s, 's')} (sent each second)")
    print(f"syncs       {describe(seen.sync_ms, 'ms')}")
    for name, highest in sorted(seen.memory_mb.items()):
        shown = ", ".join(f"{kind} {value:.0f}" for kind, value in highest.items())
        print(f"memory      {name}: {shown} MiB")
    print(json.dumps({"summary": run.summary["detail"], "syncs": run.summary["syncs"]}))
    return code


def main() -> int:
    """Parse the words, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--params", type=int, default=25_000_000)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--limit-s", type=float, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        return measure(arguments, Path(place))


if __name__ == "__main__":
    sys.exit(main())
