"""What the ranks report of an epoch, and when the reports are complete.

What it is: sums of the MetricsMsgs of the open epoch. A rank sends one whenever its
plan is used up and nothing of it is uncommitted, so an epoch may bring several of a
rank; they are complete when, for every alive rank, they add up to the samples that
the books attribute to it.
What it is not: the books; it decides about no sample.
Who drives it: `coordinator.inbox` adds, `coordinator.advance` asks.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from flodl_core.ids import Rank
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.units import Milliseconds


@dataclass(slots=True)
class _RankTotals:
    """One rank's reports of the open epoch, added up."""

    samples: int = 0
    batches: int = 0
    loss_sum: float = 0.0
    loss_samples: int = 0
    share_complete_ms: Milliseconds = 0.0
    compute_only_ms: Milliseconds = 0.0
    data_starve_ms: Milliseconds = 0.0


@dataclass(slots=True)
class EpochTotals:
    """The reports of one epoch."""

    epoch: int
    _ranks: dict[Rank, _RankTotals] = field(default_factory=dict)
    _scalars: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, report: MetricsMsg) -> None:
        """Add a report of this epoch; a loss that is not finite has no weight."""
        totals = self._ranks.setdefault(report.rank, _RankTotals())
        totals.samples += report.samples_processed
        totals.batches += report.batches_processed
        totals.share_complete_ms += report.share_complete_ms
        totals.compute_only_ms += report.compute_only_ms
        totals.data_starve_ms += report.data_starve_ms
        if report.avg_loss is not None and math.isfinite(report.avg_loss):
            totals.loss_sum += report.avg_loss * report.samples_processed
            totals.loss_samples += report.samples_processed
        for name, pair in report.scalars.items():
            if len(pair) == 2 and all(math.isfinite(value) for value in pair):
                total, count = self._scalars.get(name, (0.0, 0.0))
                self._scalars[name] = (total + pair[0], count + pair[1])

    def reported_samples(self, rank: Rank) -> int:
        """Samples that the rank's reports add up to."""
        totals = self._ranks.get(rank)
        return totals.samples if totals else 0

    def missing(self, alive: Iterable[Rank], attributed: Callable[[Rank], int]) -> tuple[Rank, ...]:
        """The alive ranks whose reports do not add up to what is attributed to them."""
        return tuple(rank for rank in alive if self.reported_samples(rank) != attributed(rank))

    @property
    def loss(self) -> float | None:
        """The mean loss, weighted by samples; None if no rank reported one."""
        samples = sum(totals.loss_samples for totals in self._ranks.values())
        if not samples:
            return None
        return sum(totals.loss_sum for totals in self._ranks.values()) / samples

    @property
    def scalars(self) -> dict[str, float]:
        """Means of the named values; one without a count is left out."""
        return {name: total / count for name, (total, count) in self._scalars.items() if count}
