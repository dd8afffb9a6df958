"""What a rank did in an epoch since its last report: the sums behind MetricsMsg."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flodl_core.ids import Rank
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.training.channel import Row
from flodl_core.training.scalar_sum import ScalarSum
from flodl_core.units import Seconds

FOLD_ROWS = 4096
"""Batches that are kept as rows before they are summed up."""


@dataclass(slots=True)
class _Totals:
    began: Seconds
    share_done: Seconds
    rows: list[Row] = field(default_factory=list)
    loss_sum: float = 0.0
    loss_samples: int = 0
    batches: int = 0
    samples: int = 0
    compute_ms: float = 0.0
    starve_ms: float = 0.0

    def fold(self) -> None:
        """Sum up the rows kept so far."""
        for batch_ms, data_ms, _, _, samples, loss, _ in self.rows:
            self.batches += 1
            self.samples += samples
            self.compute_ms += batch_ms
            self.starve_ms += data_ms
            if loss is not None:
                self.loss_sum += loss * samples
                self.loss_samples += samples
        self.rows.clear()


class ShareTotals:
    """Totals by epoch; reporting one begins it anew.

    A batch costs the training thread one row; sums are made when they are asked for.
    """

    def __init__(self) -> None:
        self._epochs: dict[int, _Totals] = {}
        self._scalars: dict[int, dict[str, ScalarSum]] = {}

    def begin(self, epoch: int, now: Seconds) -> None:
        """Note that an epoch starts here, unless it has already."""
        self._epochs.setdefault(epoch, _Totals(began=now, share_done=now))

    def add_batch(self, epoch: int, row: Row) -> None:
        """Add one batch.

        Args:
            epoch: event number.
            row: as it is reported.
        """
        now = row[-1]
        totals = self._epochs.get(epoch)
        if totals is None:
            totals = self._epochs[epoch] = _Totals(began=now, share_done=now)
        totals.rows.append(row)
        totals.share_done = now
        if len(totals.rows) >= FOLD_ROWS:
            totals.fold()

    def add_scalars(self, epoch: int, scalars: Mapping[str, ScalarSum]) -> None:
        """Add what the job's step noted in a batch of the epoch, by name."""
        kept = self._scalars.setdefault(epoch, {})
        for name, noted in scalars.items():
            kept.setdefault(name, ScalarSum()).add(noted)

    def report(self, rank: Rank, epoch: int, now: Seconds) -> MetricsMsg:
        """Return the epoch's totals since the last report, and begin it anew."""
        self.begin(epoch, now)
        totals = self._epochs.pop(epoch)
        totals.fold()
        return MetricsMsg(
            rank=rank,
            epoch=epoch,
            avg_loss=totals.loss_sum / totals.loss_samples if totals.loss_samples else None,
            batches_processed=totals.batches,
            samples_processed=totals.samples,
            loss_samples=totals.loss_samples,
            epoch_ms=(now - totals.began) * 1e3,
            share_complete_ms=(totals.share_done - totals.began) * 1e3,
            compute_only_ms=totals.compute_ms,
            data_starve_ms=totals.starve_ms,
            scalars={name: one.read() for name, one in self._scalars.pop(epoch, {}).items()},
        )
