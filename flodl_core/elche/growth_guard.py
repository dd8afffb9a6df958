"""The guard on the rate of divergence: does it grow with the batches, and how fast.

What it is: a smoothed growth rate a batch, and two streaks that it must keep up. The rate
of one cycle is λ = ln(Dₜ / Dₜ₋₁) / n, with D the largest divergence and n the most batches
that a rank did in the window.
What it is not: a judge of how large divergence is; that is `guards.LevelGuard`.
Who drives it: as any guard, `elche.judge`.
"""

import math
from collections.abc import Iterable
from typing import Final

from flodl_core.elche.guards import (
    DivergenceReport,
    NudgeDown,
    Stable,
    SuppressGrowth,
    Verdict,
)

SMOOTHING: Final = 0.9
"""Part of the smoothed rate that a cycle keeps of it."""
SUPPRESS_RATE: Final = 1e-3
"""Growth a batch above which windows must not grow."""
NUDGE_RATE: Final = 1e-2
"""Growth a batch above which the window shrinks."""
NUDGE_FACTOR: Final = 0.5
_STREAK: Final = 3
_NOISE: Final = 1e-8
_HISTORY_LENGTH: Final = 5


class GrowthGuard:
    """Suppresses growth while divergence grows, and halves the window while it grows fast.

    A verdict ends its own streak and no other: after a nudge the next cycle of the same kind
    still suppresses.
    """

    def __init__(
        self, *, suppress_rate: float = SUPPRESS_RATE, nudge_rate: float = NUDGE_RATE
    ) -> None:
        """Watch for these rates a batch; an infinite one never fires."""
        self._suppress_rate = suppress_rate
        self._nudge_rate = nudge_rate
        self._previous = 0.0
        self._sum = 0.0
        self._weight = 0.0
        self._suppress_streak = 0
        self._nudge_streak = 0

    @property
    def name(self) -> str:
        """`growth`."""
        return "growth"

    @property
    def rate(self) -> float | None:
        """The smoothed growth a batch; None before two cycles could be compared."""
        return self._sum / self._weight if self._weight else None

    @property
    def history(self) -> tuple[float, ...]:
        """The last divergence (0: none), the rate's sum and weight, and both streaks."""
        streaks = (float(self._suppress_streak), float(self._nudge_streak))
        return (self._previous, self._sum, self._weight, *streaks)

    def review(self, report: DivergenceReport) -> Verdict:
        """Judge a cycle; one without a divergence is no sample and Stable."""
        largest = report.largest_divergence
        if largest is None:
            return Stable()
        step = self._step(largest, report.most_batches)
        if step is None:
            self._suppress_streak = self._nudge_streak = 0
            return Stable()
        self._sum = SMOOTHING * self._sum + (1 - SMOOTHING) * step
        self._weight = SMOOTHING * self._weight + (1 - SMOOTHING)
        rate = self._sum / self._weight
        self._suppress_streak = self._suppress_streak + 1 if rate > self._suppress_rate else 0
        self._nudge_streak = self._nudge_streak + 1 if rate > self._nudge_rate else 0
        return self._fire(rate)

    def restore(self, history: Iterable[float]) -> None:
        """Take up a saved state; one of another form is left where it is."""
        values = tuple(history)
        if len(values) != _HISTORY_LENGTH or not all(map(math.isfinite, values)):
            return
        self._previous, self._sum, self._weight = values[:3]
        self._suppress_streak, self._nudge_streak = int(values[3]), int(values[4])

    def _step(self, largest: float, batches: int) -> float | None:
        """Return this cycle's own rate; None where there is nothing to compare."""
        previous, self._previous = self._previous, largest if largest > _NOISE else 0.0
        if not previous or not self._previous or batches < 1:
            return None
        return math.log(largest / previous) / batches

    def _fire(self, rate: float) -> Verdict:
        grows = f"divergence grows by {rate:.2%} a batch"
        if self._nudge_streak >= _STREAK:
            self._nudge_streak = 0
            return NudgeDown(NUDGE_FACTOR, f"{grows}, above {self._nudge_rate:.2%} three times")
        if self._suppress_streak >= _STREAK:
            self._suppress_streak = 0
            return SuppressGrowth(f"{grows}, above {self._suppress_rate:.2%} three times")
        return Stable()
