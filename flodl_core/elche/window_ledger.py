"""The batches of one rank in one window, and what they cost on two scales.

What it is: sums. The *compute* cost of a batch is its step. Its *delivered* cost is the
time between two of them on the coordinator's clock, never below the step and its wait
for data. The first batch of a window is the *fill*: control transit, pickup and prefetch
fall into it, so it is kept apart; batches 2 … n make the marginal rate.
What it is not: a divisor of any average, nor a judge of speed.
Who drives it: the coordinator, a ledger for each half of a rank's window.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flodl_core.ids import Rank
from flodl_core.units import Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWindow:
    """One rank's window, closed.

    Attributes:
        batches: finished ones.
        wall_ms: their steps, summed, without waits for data.
        first_ms: the first batch; 0 if there is none.
        delivered_ms: batches 2 … n, summed on the delivered scale.
        delivered_batches: how many those are.
    """

    rank: Rank
    batches: int = 0
    wall_ms: Milliseconds = 0.0
    first_ms: Milliseconds = 0.0
    delivered_ms: Milliseconds = 0.0
    delivered_batches: int = 0

    @property
    def per_batch_ms(self) -> Milliseconds:
        """Compute cost of a batch; infinite without a batch."""
        return self.wall_ms / self.batches if self.batches else math.inf

    @property
    def marginal_ms(self) -> Milliseconds | None:
        """Delivered cost of a batch after the first; None if there is no sample."""
        if self.delivered_batches == 0 or self.delivered_ms <= 0:
            return None
        return self.delivered_ms / self.delivered_batches

    @property
    def fill_excess_ms(self) -> Milliseconds:
        """By how much the first batch cost more than a later one; 0 without a sample."""
        marginal = self.marginal_ms
        return 0.0 if marginal is None else max(0.0, self.first_ms - marginal)


class WindowLedger:
    """The open sums of one rank's window."""

    def __init__(self) -> None:
        self._batches = 0
        self._timed = 0
        self._wall_ms = 0.0
        self._first_ms = 0.0
        self._delivered_ms = 0.0
        self._delivered_batches = 0
        self._loss_sum = 0.0
        self._losses = 0

    @property
    def batches(self) -> int:
        """Batches recorded since `reset` or `reset_batches`."""
        return self._batches

    @property
    def mean_loss(self) -> float | None:
        """Mean of the finite losses; None if there is none."""
        return self._loss_sum / self._losses if self._losses else None

    def record_batch(
        self,
        batch_ms: Milliseconds,
        data_ms: Milliseconds,
        delivered_ms: Milliseconds | None = None,
        *,
        loss: float | None = None,
    ) -> None:
        """Add one batch.

        Args:
            batch_ms: the step. A number that is negative or not finite reads as 0.
            data_ms: the wait for its data before it; read likewise.
            delivered_ms: from the end of the batch before it; for the first batch of
                the window from the moment the rank was released. None if unknown: then
                batch_ms + data_ms counts. It never counts less than that.
            loss: ignored if it is not finite.
        """
        step_ms = _duration(batch_ms)
        cost_ms = max(step_ms + _duration(data_ms), _duration(delivered_ms))
        self._batches += 1
        self._wall_ms += step_ms
        if self._timed == 0:
            self._first_ms = cost_ms
        else:
            self._delivered_ms += cost_ms
            self._delivered_batches += 1
        self._timed += 1
        if loss is not None and math.isfinite(loss):
            self._loss_sum += loss
            self._losses += 1

    def callback_cost(self, cost_ms: Milliseconds) -> None:
        """Take a callback's time out of the window; no sum falls below 0."""
        cost = _duration(cost_ms)
        self._wall_ms = max(0.0, self._wall_ms - cost)
        self._delivered_ms = max(0.0, self._delivered_ms - cost)

    def reset_batches(self) -> None:
        """Count batches from 0 again; times and losses stay."""
        self._batches = 0

    def reset_timing(self) -> None:
        """Forget times and losses; the next batch is a first one. The count stays."""
        self._wall_ms = self._first_ms = self._delivered_ms = self._loss_sum = 0.0
        self._delivered_batches = self._losses = self._timed = 0

    def reset(self) -> None:
        """Begin a window."""
        self.reset_batches()
        self.reset_timing()

    def window(self, rank: Rank) -> RankWindow:
        """Return the sums so far as the window of `rank`."""
        return RankWindow(
            rank=rank,
            batches=self._batches,
            wall_ms=self._wall_ms,
            first_ms=self._first_ms,
            delivered_ms=self._delivered_ms,
            delivered_batches=self._delivered_batches,
        )


def delivered_spacing(
    gap_ms: Milliseconds, since_previous_ms: Sequence[Milliseconds]
) -> tuple[Milliseconds, ...]:
    """Return what each row of one coalesced report took on the receiver's clock.

    Args:
        gap_ms: from the end of the report before (or the rank's release) to that of this one.
        since_previous_ms: by row, the rank's own spacing.

    Returns:
        By row: its own spacing, and for the first what is left of the gap, at least 0.
    """
    if not since_previous_ms:
        return ()
    later = tuple(_duration(spacing) for spacing in since_previous_ms[1:])
    return (max(0.0, _duration(gap_ms) - sum(later)), *later)


def _duration(value_ms: float | None) -> float:
    return value_ms if value_ms is not None and math.isfinite(value_ms) and value_ms > 0 else 0.0
