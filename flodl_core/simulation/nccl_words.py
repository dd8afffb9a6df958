"""What a simulated rank on NCCL says of its batches, epochs and evaluations.

What it is: messages with made-up times, which nothing depends on in a world without time.
What it is not: the answers of a cycle.
Who drives it: `nccl_rank`.
"""

from flodl_core.dispatch.actions import RunEval
from flodl_core.ids import Rank
from flodl_core.messages import timing
from flodl_core.messages.metrics import MetricsMsg


def batch_of(rank: Rank, step: int, *, samples: int, loss: float) -> timing.Batches:
    """Return the report of one batch."""
    row = timing.Batch(
        batch_ms=10.0,
        data_ms=0.0,
        since_previous_ms=0.0,
        step_count=step,
        samples=samples,
        loss=loss,
    )
    return timing.Batches(rank=rank, rows=(row,))


def metrics_of(rank: Rank, epoch: int, *, batches: int, samples: int) -> MetricsMsg:
    """Return the report of a rank's share of an epoch."""
    return MetricsMsg(
        rank=rank,
        epoch=epoch,
        avg_loss=0.5 if samples else None,
        batches_processed=batches,
        samples_processed=samples,
        loss_samples=samples,
        epoch_ms=1.0,
        share_complete_ms=1.0,
        compute_only_ms=1.0,
        data_starve_ms=0.0,
        scalars={},
    )


def score_of(rank: Rank, action: RunEval) -> timing.EvalResult:
    """Return the answer to an evaluation."""
    return timing.EvalResult(
        rank=rank,
        schedule_id=action.schedule_id,
        epoch=action.epoch,
        metric=1.0,
        metric_name="tiny",
        elapsed_ms=1.0,
    )
