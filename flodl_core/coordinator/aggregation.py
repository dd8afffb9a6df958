"""What the ranks report of an epoch, and when the reports are complete.

What it is: sums of the MetricsMsgs of the open epoch. A rank sends one whenever its
plan is used up and nothing of it is uncommitted, and before a save, so an epoch may
bring several of a rank; they are complete when, for every alive rank, they add up to
the samples that the books attribute to it. What was reported before a resume goes in.
What it is not: the books; it decides about no sample.
Who drives it: `coordinator.inbox` adds, `coordinator.advance` asks.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from flodl_core.coordinator.facts import OpenTotals
from flodl_core.ids import Rank
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.units import Seconds


@dataclass(slots=True)
class EpochTotals:
    """The reports of one epoch.

    Attributes:
        earlier: what was reported of it before a resume.
    """

    epoch: int
    earlier: OpenTotals = field(default_factory=OpenTotals)
    _samples: Counter[Rank] = field(init=False, default_factory=Counter)
    _loss_sum: float = field(init=False)
    _loss_samples: int = field(init=False)
    _scalars: dict[str, tuple[float, float]] = field(init=False)

    def __post_init__(self) -> None:
        self._loss_sum, self._loss_samples = self.earlier.loss_sum, self.earlier.loss_samples
        self._scalars = dict(self.earlier.scalars)

    def add(self, report: MetricsMsg) -> None:
        """Add a report of this epoch; what would not be finite has no weight."""
        self._samples[report.rank] += report.samples_processed
        if report.avg_loss is not None:
            loss_sum = self._loss_sum + report.avg_loss * report.loss_samples
            if math.isfinite(loss_sum):
                self._loss_sum = loss_sum
                self._loss_samples += report.loss_samples
        for name, pair in report.scalars.items():
            if len(pair) == 2:
                before = self._scalars.get(name, (0.0, 0.0))
                total, count = before[0] + pair[0], before[1] + pair[1]
                if math.isfinite(total) and math.isfinite(count):
                    self._scalars[name] = (total, count)

    def reported_samples(self, rank: Rank) -> int:
        """Samples that the rank's reports add up to."""
        return self._samples[rank]

    def missing(self, alive: Iterable[Rank], attributed: Callable[[Rank], int]) -> tuple[Rank, ...]:
        """The alive ranks whose reports do not add up to what is attributed to them."""
        return tuple(rank for rank in alive if self.reported_samples(rank) != attributed(rank))

    @property
    def loss(self) -> float | None:
        """The mean loss, weighted by samples; None if no rank reported one."""
        return self._loss_sum / self._loss_samples if self._loss_samples else None

    @property
    def scalars(self) -> dict[str, float]:
        """Means of the named values by name; one without a count is left out."""
        means = {name: total / count for name, (total, count) in self._scalars.items() if count}
        return {name: mean for name, mean in sorted(means.items()) if math.isfinite(mean)}

    def duration_s(self, lasted_s: Seconds) -> Seconds:
        """Return how long the epoch has lasted, the time before a resume included.

        Args:
            lasted_s: since it began, or was gone on with.
        """
        return self.earlier.duration_s + lasted_s

    def so_far(self, lasted_s: Seconds) -> OpenTotals:
        """Return what a resume of this epoch goes on from; `lasted_s` as in `duration_s`."""
        return OpenTotals(
            loss_sum=self._loss_sum,
            loss_samples=self._loss_samples,
            scalars=dict(self._scalars),
            duration_s=self.duration_s(lasted_s),
        )
