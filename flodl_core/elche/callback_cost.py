"""What callbacks cost their rank, and how many batches that is worth.

What it is: a smoothed cost of each rank's callbacks, and the slack: while a rank is at one,
it is dealt so many batches fewer that it ends its window with the others.
What it is not: a choice of rank, nor of when a callback runs.
Who drives it: `coordinator.callbacks` keeps the costs, `coordinator.cadence` deals by them.
"""

import math
from collections.abc import Mapping
from typing import Final

from flodl_core.ids import Rank
from flodl_core.units import Milliseconds

SMOOTHING: Final = 0.3
"""Part of a new cost in the smoothed one; the first is taken as it is."""
LEAST_SLACK_MS: Final[Milliseconds] = 100.0
LEAST_PART: Final = 0.05
"""Of the anchor rank's window: what costs less is borne and not dealt around."""


class CallbackCosts:
    """The smoothed cost of a callback on each rank that ran one."""

    def __init__(self) -> None:
        self._costs_ms: dict[Rank, Milliseconds] = {}
        self._last_ms: Milliseconds | None = None

    def push(self, rank: Rank, elapsed_ms: Milliseconds) -> None:
        """Take in what a callback took, failed ones too; what is no duration is ignored."""
        if not math.isfinite(elapsed_ms) or elapsed_ms < 0:
            return
        before = self._costs_ms.get(rank)
        smoothed = elapsed_ms if before is None else before + SMOOTHING * (elapsed_ms - before)
        self._costs_ms[rank] = self._last_ms = smoothed

    def cost_ms(self, rank: Rank) -> Milliseconds | None:
        """Return what to expect of a rank: its own, else that of who ran one last."""
        return self._costs_ms.get(rank, self._last_ms)


def worth_slack(cost_ms: Milliseconds, anchor_wall_ms: Milliseconds) -> bool:
    """Return whether a cost is dealt around: above 100 ms and 5 % of the anchor's window."""
    return cost_ms > max(LEAST_SLACK_MS, LEAST_PART * anchor_wall_ms)


def absorb_slack(
    counts: Mapping[Rank, int],
    slack_ms: Mapping[Rank, Milliseconds],
    ms_per_batch: Mapping[Rank, Milliseconds],
) -> dict[Rank, int]:
    """Return counts that leave each rank its slack, at least 1 batch.

    Args:
        counts: batches a window, of the alive ranks.
        slack_ms: by rank; of ranks that are not there or not measured it is ignored.
        ms_per_batch: of the ranks that were measured, above 0.
    """
    return {
        rank: max(1, count - math.ceil(slack_ms[rank] / ms_per_batch[rank]))
        if rank in slack_ms and rank in ms_per_batch
        else count
        for rank, count in counts.items()
    }
