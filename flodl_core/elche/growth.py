"""When the window should grow: what averaging costs, against what it may cost.

What it is: the overhead rule, the latch that a guard's verdict closes, and the two small
steps beside them: a nudge down, and a batch more on a calm cycle where that is asked for.
What it is not: a shrinker; a proposal only ever grows.
Who drives it: `elche.balancer`, with one cost a report and one verdict a cycle.

The overhead is read from the *cost* of the last three reports at the anchor and the speed
of now. The median of costs gives the median of overheads, and a window that has just
grown is not judged by what its shorter predecessors lost.
"""

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from flodl_core.elche.settings import (
    GROWTH_STEP_CAP,
    MAX_SPEED_RATIO,
    OVERHEAD_WINDOW,
    VERDICTS_TO_REARM,
    ElcheSettings,
)
from flodl_core.elche.speed import median
from flodl_core.units import Milliseconds

LEAST_NUDGE: Final = 0.1
"""No nudge makes the anchor smaller than this part of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A larger anchor that waits for a verdict.

    Attributes:
        anchor: batches a window, above the one so far.
        overhead: the one that asks for it, 0 to 1.
    """

    anchor: int
    overhead: float


class CostRing:
    """What averaging cost beside the batches in the last three reports."""

    def __init__(self) -> None:
        self._costs_ms: deque[Milliseconds] = deque(maxlen=OVERHEAD_WINDOW)

    def push(self, cost_ms: Milliseconds) -> None:
        """Add a report's cost; one that is not finite is ignored, a negative one reads as 0."""
        if math.isfinite(cost_ms):
            self._costs_ms.append(max(0.0, cost_ms))

    def overhead(self, anchor: int, slow_ms: Milliseconds | None) -> float | None:
        """Return the median's part of a window of `anchor` batches; None if not measured."""
        if not self._costs_ms or slow_ms is None:
            return None
        cost_ms = median(list(self._costs_ms))
        whole_ms = anchor * slow_ms + cost_ms
        return cost_ms / whole_ms if whole_ms > 0 else 0.0


class GrowthLatch:
    """Whether growth is allowed: a verdict shuts it, five stable ones in a row open it."""

    def __init__(self) -> None:
        self._shut_because: str | None = None
        self._stable_verdicts = 0

    @property
    def shut_because(self) -> str | None:
        """The reason of the verdict that shut it; None if it is open."""
        return self._shut_because

    @property
    def stable_to_go(self) -> int:
        """Stable verdicts in a row that still open it; 0 if it is open."""
        return 0 if self._shut_because is None else VERDICTS_TO_REARM - self._stable_verdicts

    def shut(self, reason: str) -> None:
        """Growth is off from now on."""
        self._shut_because, self._stable_verdicts = reason, 0

    def stable(self) -> None:
        """Count a stable verdict."""
        if self._shut_because is None:
            return
        self._stable_verdicts += 1
        if self._stable_verdicts >= VERDICTS_TO_REARM:
            self._shut_because, self._stable_verdicts = None, 0


def propose_growth(
    anchor: int, overhead: float, *, margin: float, settings: ElcheSettings
) -> Proposal | None:
    """Return a larger anchor if averaging takes too much of the window.

    Args:
        anchor: batches a window so far.
        overhead: averaging's part of the window, 0 to 1.
        margin: how many times the target it must exceed.
        settings: the target and the bounds.

    Returns:
        ceil(anchor · overhead / target), at most twice the anchor and within the bounds; None
        if that is no growth. From below the least anchor, where only a nudge leads, it
        comes back at most twofold a step.
    """
    target = settings.overhead_target
    if overhead <= margin * target:
        return None
    wanted = math.ceil(anchor * min(overhead / target, GROWTH_STEP_CAP))
    wanted = max(wanted, settings.lowest_anchor)
    wanted = min(wanted, int(anchor * GROWTH_STEP_CAP), settings.max_anchor)
    return Proposal(anchor=wanted, overhead=overhead) if wanted > anchor else None


def nudged_anchor(anchor: int, factor: float) -> int:
    """Return the anchor after a nudge down: at least 1, never larger.

    Args:
        anchor: batches a window so far.
        factor: clamped to 0.1 … 1; one that is not finite changes nothing.
    """
    if not math.isfinite(factor):
        return anchor
    return max(1, min(anchor, math.ceil(anchor * min(max(factor, LEAST_NUDGE), 1.0))))


def relaxed_anchor(
    anchor: int, speeds_ms: Collection[Milliseconds], *, settings: ElcheSettings
) -> int:
    """Return the anchor with one batch more, or as it is where a bound is in the way.

    Args:
        anchor: batches a window so far.
        speeds_ms: cost of a batch of the measured ranks, each above 0.
        settings: the bounds; the fastest rank may not get more than `max_batch_diff` batches
            beyond the anchor.
    """
    wanted = anchor + 1
    if wanted > settings.max_anchor or not speeds_ms:
        return anchor
    ratio = min(max(speeds_ms) / min(speeds_ms), MAX_SPEED_RATIO)
    most = settings.max_batch_diff
    if most is not None and round(wanted * ratio) - wanted > most:
        return anchor
    return wanted
