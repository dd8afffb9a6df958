"""What a rank did in an epoch since its last report: the sums behind MetricsMsg."""

from dataclasses import dataclass, field

from flodl_core.ids import Rank
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.units import Seconds


@dataclass(slots=True)
class _Totals:
    began: Seconds
    share_done: Seconds
    loss_sum: float = 0.0
    loss_samples: int = 0
    batches: int = 0
    samples: int = 0
    compute_ms: float = 0.0
    starve_ms: float = 0.0
    scalars: dict[str, tuple[float, float]] = field(default_factory=dict)


class ShareTotals:
    """Totals by epoch; reporting one begins it anew."""

    def __init__(self) -> None:
        self._epochs: dict[int, _Totals] = {}

    def begin(self, epoch: int, now: Seconds) -> None:
        """Note that an epoch starts here, unless it has already."""
        self._epochs.setdefault(epoch, _Totals(began=now, share_done=now))

    def add_batch(
        self,
        epoch: int,
        now: Seconds,
        *,
        samples: int,
        loss: float | None,
        data_ms: float,
        ms: float,
    ) -> None:
        """Add one batch.

        Args:
            epoch: event number.
            now: when the batch was done.
            samples: in it.
            loss: mean over them; None where it is not finite.
            data_ms: time spent on getting the batch.
            ms: time spent in the job's step.
        """
        self.begin(epoch, now)
        totals = self._epochs[epoch]
        totals.share_done = now
        totals.batches += 1
        totals.samples += samples
        totals.compute_ms += ms
        totals.starve_ms += data_ms
        if loss is not None:
            totals.loss_sum += loss * samples
            totals.loss_samples += samples

    def add_scalars(self, epoch: int, scalars: dict[str, tuple[float, float]]) -> None:
        """Add the (sum, count) pairs that the job's step noted."""
        kept = self._epochs[epoch].scalars
        for name, (total, count) in scalars.items():
            before = kept.get(name, (0.0, 0.0))
            kept[name] = (before[0] + total, before[1] + count)

    def report(self, rank: Rank, epoch: int, now: Seconds) -> MetricsMsg:
        """Return the epoch's totals since the last report, and begin it anew."""
        self.begin(epoch, now)
        totals = self._epochs.pop(epoch)
        return MetricsMsg(
            rank=rank,
            epoch=epoch,
            avg_loss=totals.loss_sum / totals.loss_samples if totals.loss_samples else None,
            batches_processed=totals.batches,
            samples_processed=totals.samples,
            epoch_ms=(now - totals.began) * 1e3,
            share_complete_ms=(totals.share_done - totals.began) * 1e3,
            compute_only_ms=totals.compute_ms,
            data_starve_ms=totals.starve_ms,
            scalars={name: tuple(pair) for name, pair in totals.scalars.items()},
        )
