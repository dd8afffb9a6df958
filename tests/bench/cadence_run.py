"""How near a run of unequal ranks comes to the sum of their speeds, and where the rest goes.

    python tests/bench/cadence_run.py share --sleeps 5,5,60 --rounds 3
    python tests/bench/cadence_run.py share --sleeps 10,10,10,10 --overhead-target 0.02
    python tests/bench/cadence_run.py slow --sleeps 10,10,10,10 --slow-rank 1 --factor 10

Each round is a real run of the product. Its ranks first measure themselves alone, one
after another, in the processes that train afterwards: the sum of these speeds is the
ideal. `share` counts batches over a span after 12 windows and says what the ranks'
time went into. `slow` stretches one rank's waiting in the middle of a window, and
follows the windows after it. Quiet machine, one script at a time. It asserts nothing.
"""

import argparse
import json
import shlex
import signal
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hetero_run import HeteroRun
from hetero_tally import Tally, rest

WINDOWS = 12


@dataclass(frozen=True, slots=True)
class Pace:
    """What a rank's time went into over a span, in parts of it, and its step against solo.

    Attributes:
        steps: in steps of the job.
        data: between two batches of a window.
        between: from a window's last batch to the first of the next.
        stretch: a step's mean time over the solo step's.
    """

    steps: float
    data: float
    between: float
    stretch: float


def pace_of(tally: Tally, rank: int, begin: float, end: float) -> Pace:
    """Split a rank's span into steps, gaps inside windows and gaps between windows."""
    rows = tally.batches(rank)
    inside = (rows.began >= begin) & (rows.ended <= end)
    began, ended, window = rows.began[inside], rows.ended[inside], rows.window[inside]
    gaps, crosses = began[1:] - ended[:-1], window[1:] != window[:-1]
    whole = ended[-1] - began[0]
    steps = ended - began
    return Pace(
        steps=float(steps.sum() / whole),
        data=float(gaps[~crosses].sum() / whole),
        between=float(gaps[crosses].sum() / whole),
        stretch=float(steps.mean() * tally.solo(rank)),
    )


def window_rates(tally: Tally) -> list[tuple[float, float, list[int]]]:
    """Return begin, end and each rank's batches of every window that has ended."""
    rows = [tally.batches(rank) for rank in range(tally.world)]
    last = int(min(found.window[-1] for found in rows))
    begins = [
        min(float(found.began[np.searchsorted(found.window, number)]) for found in rows)
        for number in range(last + 1)
    ]
    return [
        (
            begins[number],
            begins[number + 1],
            [int((found.window == number).sum()) for found in rows],
        )
        for number in range(last)
    ]


def describe(state: dict[str, object]) -> str:
    """Return one line about the counts and costs that the run shows."""
    elche, reduce = state.get("elche"), state.get("reduce")
    if not isinstance(elche, dict) or not isinstance(reduce, dict):
        return "no state"
    overhead = elche["overhead"]
    shown = f"{100 * overhead:.1f}%" if overhead is not None else "unknown"
    return (
        f"counts {elche['batch_counts']} {elche['phase']} overhead {shown} "
        f"last sync {reduce['last_sync_ms'] or 0:.1f} ms"
    )


def measure_share(words: argparse.Namespace, options: list[str]) -> dict[str, object]:
    """Run once, print the round, and return its figures."""
    with HeteroRun(words.sleeps, job_args={"solo_s": words.solo}, options=options) as run:
        run.wait_for_averages(1 + WINDOWS)
        counts = list((run.state().get("elche") or {})["batch_counts"])
        run.wait_for_averages(1 + words.windows)
        begin = time.monotonic()
        rest(words.seconds)
        end = time.monotonic()
        state = run.state()
        run.end()
        tally, ranks = run.tally, range(len(words.sleeps))
        ideal = sum(tally.solo(rank) for rank in ranks)
        done = [tally.count_between(rank, begin, end) for rank in ranks]
        share = sum(done) / (end - begin) / ideal
        anchor = min(ranks, key=tally.solo)
        off = [
            counts[rank] / counts[anchor] / (tally.solo(rank) / tally.solo(anchor)) - 1
            for rank in ranks
        ]
        print(f"share of the ideal {share:.3f}   {describe(state)}")
        print(f"  solo batches/s {_row([tally.solo(rank) for rank in ranks], '.1f')}")
        print(f"  in the run     {_row([one / (end - begin) for one in done], '.1f')}")
        print(f"  counts after {WINDOWS} windows {counts}, off the ratio {_row(off, '+.1%')}")
        for rank in ranks:
            pace = pace_of(tally, rank, begin, end)
            print(
                f"  rank {rank}: steps {pace.steps:.1%} (x{pace.stretch:.3f} solo), "
                f"data {pace.data:.1%}, between windows {pace.between:.1%}"
            )
        return {"share": share, "off": off, "counts": counts, "state": state.get("elche")}


def measure_slow(words: argparse.Namespace, options: list[str]) -> dict[str, object]:
    """Run once with a rank that slows down, print the round, and return its figures."""
    job_args = {"solo_s": words.solo, "slow_factor": words.factor}
    slow = words.slow_rank
    with HeteroRun(words.sleeps, job_args=job_args, options=options) as run:
        run.wait_for_windows(words.windows)
        tally, ranks = run.tally, range(len(words.sleeps))
        before = window_rates(tally)[-5:]
        usual = statistics.median(end - begin for begin, end, _ in before)
        rest(usual / 2)
        at = time.monotonic()
        tally.slow_down(slow, words.factor)
        counted = tally.windows_done()
        run.wait_for_windows(counted + words.after, 120.0)
        cuts = run.log_lines("window_cut")
        run.end()
    rates = [tally.solo_slow(rank) if rank == slow else tally.solo(rank) for rank in ranks]
    ideal = sum(rates)
    windows = [one for one in window_rates(tally) if one[1] > at]
    to_average = (windows[0][1] - at) / usual
    shares = [sum(done) / (end - begin) / ideal for begin, end, done in windows[1:]]
    back = next((k for k, share in enumerate(shares, 1) if share > 0.9), None)
    print(f"window before {usual * 1e3:.0f} ms; the next average after {to_average:.2f} windows")
    for line in cuts[:3]:
        print(f"  {line}")
    print(f"  windows until above 0.90 of the new ideal: {back}")
    for number, (begin, end, done) in enumerate(windows[1 : words.after], 1):
        print(
            f"  {number:3d}: {(end - begin) * 1e3:6.0f} ms  {done}  share {shares[number - 1]:.3f}"
        )
    return {"to_average": to_average, "back": back, "shares": shares, "cuts": cuts}


def _row(values: list[float], form: str) -> str:
    return " ".join(format(value, form) for value in values)


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser()
    words.add_argument("what", choices=["share", "slow"])
    words.add_argument("--sleeps", default="5,5,60")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--seconds", type=float, default=8.0)
    words.add_argument("--solo", type=float, default=2.0, help="seconds a rank measures itself")
    words.add_argument("--windows", type=int, default=WINDOWS, help="windows before the span")
    words.add_argument("--overhead-target", type=float)
    words.add_argument("--slow-rank", type=int, default=1)
    words.add_argument("--factor", type=float, default=10.0)
    words.add_argument("--after", type=int, default=12, help="windows that slow follows")
    words.add_argument("--options", default="", help="further options of flodl headless")
    words.add_argument("--out", type=Path)
    given = words.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    given.sleeps = [float(sleep) for sleep in given.sleeps.split(",")]
    options = ["--mode", "cpu_cadence", *shlex.split(given.options)]
    if given.overhead_target is not None:
        options += ["--overhead-target", str(given.overhead_target)]
    measure = measure_share if given.what == "share" else measure_slow
    rounds = []
    for number in range(given.rounds):
        print(f"## round {number + 1}: sleeps {given.sleeps} ms, {' '.join(options)}", flush=True)
        rounds.append(measure(given, options))
    if given.what == "share":
        shares = [float(str(found["share"])) for found in rounds]
        print(
            f"share: median {statistics.median(shares):.3f} ({min(shares):.3f}-{max(shares):.3f})"
        )
    if given.out is not None:
        given.out.write_text(json.dumps(rounds, indent=1))


if __name__ == "__main__":
    main()
