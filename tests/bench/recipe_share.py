"""How near unequal ranks of the recipe `synthetic` come to the sum of what each does alone.

    python tests/bench/recipe_share.py --steps 5,5,60 --rounds 3
    python tests/bench/recipe_share.py --steps 10,10,10,10 --overhead-target 0.02
    python tests/bench/recipe_share.py --steps 5,5,60 --modes cpu_cadence,cpu_async

Everything is the product: first a run of one rank for each different step, with
windows so long that averaging with itself costs nothing, then the run of all ranks in each
mode, one after the other in every round. What
is compared is batches a second by the status document, over a span that begins after 12
windows. Reading data is in both, as it is for whoever trains on one device alone. Quiet
machine, one script at a time. It asserts nothing.
"""

import argparse
import signal
import statistics
import sys
from collections.abc import Mapping, Sequence

from hetero_run import HeteroRun
from hetero_tally import rest

WINDOWS = 12
SAMPLES = 100_000_000


class RecipeRun(HeteroRun):
    """A run of the recipe."""

    def __init__(self, steps_ms: Sequence[float], *, options: Sequence[str]) -> None:
        super().__init__(
            steps_ms,
            job="synthetic",
            job_args={
                "samples": SAMPLES,
                "epochs": 1,
                "step_ms": ",".join(f"{step:g}" for step in steps_ms),
            },
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


def solo_rate(step_ms: float, seconds: float) -> float:
    """Return the batches a second of one rank alone."""
    alone = ["--mode", "cpu_cadence", "--anchor", "1000", "--max-anchor", "1000"]
    with RecipeRun([step_ms], options=alone) as run:
        run.wait_for_batches(30)
        return run.rate(seconds)


def cohort_rate(
    steps_ms: Sequence[float], seconds: float, options: Sequence[str]
) -> tuple[float, list[int], list[int]]:
    """Return the batches a second of all ranks, and the counts after 12 windows and at the end."""
    with RecipeRun(steps_ms, options=options) as run:
        early = run.wait_for_averages(1 + WINDOWS)
        rate = run.rate(seconds)
        late = run.state()
        return rate, early["elche"]["batch_counts"], late["elche"]["batch_counts"]


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser()
    words.add_argument("--steps", default="5,5,60")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--seconds", type=float, default=10.0)
    words.add_argument("--solo", type=float, default=5.0, help="seconds of each rank alone")
    words.add_argument("--overhead-target", type=float)
    words.add_argument("--modes", default="cpu_cadence")
    given = words.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    steps = [float(step) for step in given.steps.split(",")]
    modes = given.modes.split(",")
    shares: dict[str, list[float]] = {mode: [] for mode in modes}
    for number in range(given.rounds):
        solo = {step: solo_rate(step, given.solo) for step in dict.fromkeys(steps)}
        for mode in modes:
            _measure(number, mode, steps, solo=solo, given=given, shares=shares[mode])
    for mode, found in shares.items():
        print(
            f"{mode}: share median {statistics.median(found):.3f} "
            f"({min(found):.3f}-{max(found):.3f})   steps {given.steps} {' '.join(_target(given))}"
        )


def _target(given: argparse.Namespace) -> list[str]:
    target = given.overhead_target
    return [] if target is None else ["--overhead-target", str(target)]


def _measure(
    number: int,
    mode: str,
    steps: Sequence[float],
    *,
    solo: Mapping[float, float],
    given: argparse.Namespace,
    shares: list[float],
) -> None:
    """Measure one mode in one round, print it and keep its share."""
    ideal = sum(solo[step] for step in steps)
    rate, early, late = cohort_rate(steps, given.seconds, ["--mode", mode, *_target(given)])
    shares.append(rate / ideal)
    slowest = max(steps)
    off = [
        count / early[steps.index(slowest)] / (solo[step] / solo[slowest]) - 1
        for count, step in zip(early, steps, strict=True)
    ]
    alone = " ".join(f"{solo[step]:.1f}" for step in steps)
    print(
        f"round {number + 1}, {mode}: share {shares[-1]:.3f}, {rate:.1f} of {ideal:.1f} batches/s"
        f" (alone {alone}); counts after {WINDOWS} windows {early}, off the ratio "
        f"{' '.join(f'{one:+.1%}' for one in off)}, at the end {late}",
        flush=True,
    )


if __name__ == "__main__":
    main()
