"""Which part of the batches each rank has had of late.

What it is: the mean of the last ten windows' counts, each as parts of its sum.
What it is not: a count; it is told, and decides nothing.
Who drives it: `elche.balancer`, once a report.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from flodl_core.ids import Rank

KEPT_WINDOWS: Final = 10


class RecentShares:
    """The parts of the last windows."""

    def __init__(self) -> None:
        self._windows: deque[dict[Rank, float]] = deque(maxlen=KEPT_WINDOWS)

    def push(self, counts: Mapping[Rank, int]) -> None:
        """Add a window; one without a batch is ignored."""
        total = sum(counts.values())
        if total:
            self._windows.append({rank: count / total for rank, count in counts.items()})

    def mean(self, counts: Mapping[Rank, int]) -> dict[Rank, float]:
        """Return the part of each rank that has a count now; they sum to 1.

        Args:
            counts: of now; before any window they are the answer. Ranks that are gone since
                are left out, and the others share what they had.
        """
        windows = self._windows or ({rank: float(count) for rank, count in counts.items()},)
        sums = {rank: sum(window.get(rank, 0.0) for window in windows) for rank in counts}
        total = sum(sums.values())
        return {rank: part / total for rank, part in sums.items()} if total else {}
