"""Which scale a window's speeds are read on: all ranks on the delivered one, or all on compute.

What it is: the rule of coherence, and the memory of each rank's last delivered sample.
What it is not: an estimate; `elche.speed` smooths what is fed here.
Who drives it: `elche.balancer`, once a report.

A window is *coherent* if each rank that moved has a delivered sample. A rank that did a
single batch has none in its window; its last one stands in for 20 windows, but never for
less than the step that was just measured, so that a rank which a cut stopped after one
slow batch is seen to be slow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from flodl_core.elche.settings import MARGINAL_VALID_WINDOWS, TimingScale
from flodl_core.elche.window_ledger import RankWindow
from flodl_core.ids import Rank
from flodl_core.units import Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FedWindow:
    """A closed window with the sample that may stand in for a missing one.

    Attributes:
        remembered_ms: the rank's last delivered cost of a batch, if it is still valid.
    """

    window: RankWindow
    remembered_ms: Milliseconds | None = None

    @property
    def delivered_ms(self) -> Milliseconds | None:
        """Delivered cost of a batch, measured or remembered; None if neither."""
        window = self.window
        if window.marginal_ms is not None or self.remembered_ms is None:
            return window.marginal_ms
        return max(self.remembered_ms, window.per_batch_ms)

    @property
    def compute_ms(self) -> Milliseconds | None:
        """Compute cost of a batch; None if the rank did not move or measured nothing."""
        window = self.window
        return window.per_batch_ms if window.batches and window.wall_ms > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What one window says of the ranks' speeds.

    Attributes:
        scale: the one that all samples are on.
        samples_ms: cost of a batch of each rank that has one.
        fill_ms: fill excess of each rank that moved.
    """

    scale: TimingScale
    samples_ms: dict[Rank, Milliseconds] = field(default_factory=dict)
    fill_ms: dict[Rank, Milliseconds] = field(default_factory=dict)


def select_feed(
    rows: Sequence[FedWindow], scale: TimingScale = TimingScale.DELIVERED
) -> Feed | None:
    """Return the samples of a window, all on one scale.

    Args:
        rows: one an alive rank.
        scale: the one that the mode rides on.

    Returns:
        The delivered samples if that is the scale and each rank that moved has one,
        otherwise the compute ones; None if nothing at all was measured.
    """
    movers = [row for row in rows if row.window.batches > 0]
    delivered = {
        row.window.rank: sample for row in movers if (sample := row.delivered_ms) is not None
    }
    coherent = scale is TimingScale.DELIVERED and len(delivered) == len(movers)
    samples = (
        delivered
        if coherent
        else {row.window.rank: sample for row in movers if (sample := row.compute_ms) is not None}
    )
    if not samples:
        return None
    return Feed(
        scale=TimingScale.DELIVERED if coherent else TimingScale.COMPUTE,
        samples_ms=samples,
        fill_ms={row.window.rank: row.window.fill_excess_ms for row in movers},
    )


class MarginalMemory:
    """The last delivered sample of each rank, for as long as it is valid."""

    def __init__(self) -> None:
        self._last: dict[Rank, tuple[Milliseconds, int]] = {}

    def recall(self, rows: Sequence[RankWindow]) -> tuple[FedWindow, ...]:
        """Return the rows of a window with what stands in; call it once a window."""
        self._last = {
            rank: (sample, age + 1)
            for rank, (sample, age) in self._last.items()
            if age < MARGINAL_VALID_WINDOWS
        }
        fed = []
        for row in rows:
            if row.marginal_ms is not None:
                self._last[row.rank] = (row.marginal_ms, 0)
            remembered = self._last.get(row.rank)
            fed.append(FedWindow(window=row, remembered_ms=remembered[0] if remembered else None))
        return tuple(fed)

    def forget(self, rank: Rank) -> None:
        """Drop what is remembered of a rank that is gone."""
        self._last.pop(rank, None)
