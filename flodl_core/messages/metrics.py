"""Metrics channel: rank → coordinator, at the end of an epoch and before a save."""

from flodl_core.ids import Rank
from flodl_core.messages.registry import message


@message(96)
class MetricsMsg:
    """What a rank did in an epoch since its last report of it."""

    rank: Rank
    epoch: int
    avg_loss: float | None = None
    batches_processed: int
    samples_processed: int
    loss_samples: int
    """Samples that `avg_loss` is the mean of: those of batches with a finite loss."""
    epoch_ms: float
    share_complete_ms: float
    """Start of the epoch to the end of this rank's share; the balancer's denominator."""
    compute_only_ms: float
    data_starve_ms: float
    scalars: dict[str, tuple[float, ...]]
    """Name to (sum, count)."""
