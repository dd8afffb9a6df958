"""Timing channel: rank → coordinator."""

from flodl_core.ids import Cycle, Rank, RankPhase, Session, SyncOutcome
from flodl_core.messages.job import RankFileRef
from flodl_core.messages.registry import message, part

Value = bool | int | float | str


@part
class Batch:
    """One batch of a rank."""

    batch_ms: float
    data_ms: float
    since_previous_ms: float
    step_count: int
    """Batches of this rank since it began, this one included."""
    samples: int
    loss: float | None = None
    param_norm: float | None = None
    sync_divergence: float | None = None


@message(80)
class Batches:
    """Coalesced batch reports (at most every 50 ms; the batch that ends a window at once)."""

    rank: Rank
    rows: tuple[Batch, ...]
    age_ms: float = 0.0
    """How long ago the last of them was done when the report left."""


@message(81)
class SnapshotReady:
    """The slot of this rank is ready for every round of the cycle."""

    rank: Rank
    cycle: Cycle
    n: int
    """Batches since the last sync whose optimizer step was applied; 0 if declared non-finite."""
    samples: int
    """Samples drawn since the last sync."""
    declared: bool = False
    """On NCCL, where no root says so: its values are not finite."""


@message(82)
class SyncAck:
    """This rank has finished the cycle."""

    rank: Rank
    cycle: Cycle
    outcome: SyncOutcome
    step_count: int
    divergence: float | None = None
    pre_norm: float | None = None
    post_norm: float | None = None
    samples: int
    is_unstepped: bool = False
    """On NCCL: the outer step was not finite, and the average was adopted in its place."""


@message(83)
class Heartbeat:
    """Each second; any other frame counts as one too."""

    rank: Rank
    step_count: int
    phase: RankPhase
    phase_s: float = 0.0
    """Seconds that this phase has lasted."""
    activity: str = ""
    """What in that phase, such as the collective that it waits in; empty if nothing is to say."""


@message(84)
class LrUpdate:
    """The learning rate changed."""

    rank: Rank
    lr: float


@message(85)
class EvalResult:
    """The metric of the consensus."""

    rank: Rank
    schedule_id: int
    epoch: int
    metric: float | None = None
    metric_name: str
    elapsed_ms: float
    error: str | None = None
    report: str | None = None
    """What the job has to say about its model, such as generated text; at most 64 KiB."""


@part
class TensorBlob:
    """One small tensor by value, C order, little endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@message(86)
class CheckpointResult:
    """What only a rank has is written, or is not."""

    rank: Rank
    version: int
    elapsed_ms: float
    error: str | None = None
    local_buffers: dict[str, TensorBlob]
    """Integer and bool buffers at that commit, by state-dict name; of the target rank only."""
    rank_file: RankFileRef | None = None
    rank_file_error: str | None = None
    """Why this rank has written no file of its own."""


@message(87)
class NewNcclIdGenerated:
    """The answer to RequestNewNcclId."""

    rank: Rank
    session: Session
    uid: bytes
    """128 bytes; empty from a rank that was not asked to make it."""
    completed_cycle: Cycle
    """The newest cycle that it completed; -1 before the first."""
    is_damaged: bool = False
    """A collective that changes parameters in place was cut off: they are no consensus."""


@message(90)
class NcclSessionFormed:
    """This rank's communicator of the session is usable."""

    rank: Rank
    session: Session


@message(88)
class ResourceSample:
    """What the rank uses; absent is not zero."""

    rank: Rank
    cpu_percent: float | None = None
    ram_used_bytes: int | None = None
    gpu_percent: float | None = None
    vram_used_bytes: int | None = None
    vram_total_bytes: int | None = None


@message(89)
class Exiting:
    """A clean end; its exit is not a death."""

    rank: Rank
    error: str | None = None
    """One line, when the rank ends because training failed there."""
