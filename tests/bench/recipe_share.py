"""How near unequal ranks of the recipe `synthetic` come to the sum of what each does alone.

    python tests/bench/recipe_share.py --steps 5,5,60 --rounds 3
    python tests/bench/recipe_share.py --steps 10,10,10,10 --jitter 0.2 --overhead-targets 0.02,0.05
    python tests/bench/recipe_share.py --steps 5,5,60 --modes cpu_cadence,cpu_async --ddp

First a run of one rank for each different step, with windows so long that averaging with
itself costs nothing, then the run of all ranks with each overhead target in each mode, and
DistributedDataParallel with the same waits (`ddp_run`), one after the other in every round.
What is compared is batches a second by the status document, over a span that begins after
12 windows. Reading data is in both, as it is for whoever trains on one device alone. Quiet
machine, one script at a time. It prints a table, also when it is ended early, and asserts
nothing.
"""

import argparse
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ddp_run import ddp_rate
from hetero_run import HeteroRun
from hetero_tally import rest

WINDOWS = 12
SAMPLES = 100_000_000
JITTERED = f"{Path(__file__).with_name('jitter_job.py')}:job"
DDP = "DDP"


class RecipeRun(HeteroRun):
    """A run of the recipe, or of the same with steps of varying time."""

    def __init__(
        self, steps_ms: Sequence[float], *, jitter: float = 0.0, options: Sequence[str]
    ) -> None:
        job_args: dict[str, object] = {
            "samples": SAMPLES,
            "epochs": 1,
            "step_ms": ",".join(f"{step:g}" for step in steps_ms),
        }
        if jitter:
            job_args["jitter"] = jitter
        super().__init__(
            steps_ms,
            job=JITTERED if jitter else "synthetic",
            job_args=job_args,
            options=options,
        )

    def rate(self, seconds: float) -> float:
        """Return all ranks' batches a second over a span."""
        first, began = self._done()
        rest(seconds)
        last, ended = self._done()
        return (last - first) / (ended - began)

    def wait_for_batches(self, count: int) -> None:
        """Wait until the ranks have done so many batches together."""
        self._wait(lambda state: _batches(state) >= count, f"{count} batches", 60.0)

    def _done(self) -> tuple[int, float]:
        state = self.state()
        return _batches(state), float(state["run"]["uptime_s"])


def _batches(state: dict[str, object]) -> int:
    ranks = state.get("ranks")
    return sum(rank["batch_count"] for rank in ranks) if isinstance(ranks, list) else 0


def solo_rate(step_ms: float, seconds: float, *, jitter: float = 0.0) -> float:
    """Return the batches a second of one rank alone."""
    alone = ["--mode", "cpu_cadence", "--anchor", "1000", "--max-anchor", "1000"]
    with RecipeRun([step_ms], jitter=jitter, options=alone) as run:
        run.wait_for_batches(30)
        return run.rate(seconds)


def cohort_rate(
    steps_ms: Sequence[float], seconds: float, *, jitter: float = 0.0, options: Sequence[str]
) -> tuple[float, list[int], list[int]]:
    """Return the batches a second of all ranks, and the counts after 12 windows and at the end."""
    with RecipeRun(steps_ms, jitter=jitter, options=options) as run:
        early = run.wait_for_averages(1 + WINDOWS)
        rate = run.rate(seconds)
        late = run.state()
        return rate, early["elche"]["batch_counts"], late["elche"]["batch_counts"]


class Shares:
    """What one call of this script measures.

    Args:
        given: its words.

    Attributes:
        found: the shares of the ideal so far, by what was measured.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._steps = [float(step) for step in given.steps.split(",")]
        targets = given.overhead_targets.split(",")
        self._runs = [(mode, target) for target in targets for mode in given.modes.split(",")]
        self.found: dict[str, list[float]] = {}

    def measure_round(self, number: int) -> None:
        """Measure each rank alone, then every run, and print each."""
        given, steps = self._given, self._steps
        solo = {
            step: solo_rate(step, given.solo, jitter=given.jitter) for step in dict.fromkeys(steps)
        }
        ideal = sum(solo[step] for step in steps)
        alone = " ".join(f"{solo[step]:.1f}" for step in steps)
        print(f"round {number}: alone {alone}, together {ideal:.1f} batches/s", flush=True)
        for mode, target in self._runs:
            options = ["--mode", mode, "--overhead-target", target]
            rate, early, late = cohort_rate(
                steps, given.seconds, jitter=given.jitter, options=options
            )
            slowest = max(steps)
            off = [
                count / early[steps.index(slowest)] / (solo[step] / solo[slowest]) - 1
                for count, step in zip(early, steps, strict=True)
            ]
            words = " ".join(f"{one:+.1%}" for one in off)
            self._enter(f"{mode}, target {target}", rate, ideal)
            print(
                f"  counts after {WINDOWS} windows {early}, off the ratio {words}; "
                f"at the end {late}",
                flush=True,
            )
        if given.ddp:
            rate = ddp_rate(steps, given.seconds, jitter=given.jitter)
            self._enter(DDP, rate, ideal)

    def _enter(self, what: str, rate: float, ideal: float) -> None:
        share = rate / ideal
        self.found.setdefault(what, []).append(share)
        print(f"  {what}: share {share:.3f}, {rate:.1f} batches/s", flush=True)

    def print_table(self) -> None:
        """Print the median of each, with least and most."""
        jitter = f", jitter {self._given.jitter:g}" if self._given.jitter else ""
        print(f"\n| {self._given.steps} ms{jitter} | share, median | least to most | rounds |")
        print("|---|---|---|---|")
        for what, shares in self.found.items():
            print(
                f"| {what} | {statistics.median(shares):.3f} | {min(shares):.3f} to "
                f"{max(shares):.3f} | {len(shares)} |",
                flush=True,
            )


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser()
    words.add_argument("--steps", default="5,5,60")
    words.add_argument("--jitter", type=float, default=0.0, help="part of each wait, up or down")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--seconds", type=float, default=10.0)
    words.add_argument("--solo", type=float, default=5.0, help="seconds of each rank alone")
    words.add_argument("--limit", type=float, default=1e6, help="seconds; no round begins later")
    words.add_argument("--overhead-targets", default="0.05")
    words.add_argument("--modes", default="cpu_cadence")
    words.add_argument("--ddp", action="store_true", help="DistributedDataParallel too")
    given = words.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    shares, until = Shares(given), time.monotonic() + given.limit
    try:
        for number in range(1, given.rounds + 1):
            if time.monotonic() < until:
                try:
                    shares.measure_round(number)
                except RuntimeError as error:
                    print(f"round {number} is given up: {error}", flush=True)
    finally:
        shares.print_table()


if __name__ == "__main__":
    main()
