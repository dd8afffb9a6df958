"""Control channel: coordinator → rank. offset and size count samples."""

from flodl_core.ids import Cycle, Rank, SaveReason, Session
from flodl_core.messages.registry import message, part
from flodl_core.messages.timing import TensorBlob


@part
class EpochPlan:
    """All that a rank needs to begin: which slice of the pass, and how far before it holds."""

    epoch: int
    offset: int
    size: int
    window_batches: int
    """Batches since the last snapshot after which the rank holds itself; 0 is no hold."""
    cohort_batches: int = 0
    """Batches that the whole cohort plans for the same window; 0 if not told. Inside a window the
    global step advances by cohort_batches / window_batches a batch, untold by 1."""


@message(48)
class RequestParams:
    """Snapshot now, or at the next batch boundary, and take part in this cycle."""

    cycle: Cycle


@message(49)
class Update:
    """The cycle is over; schedule only, never weights."""

    version: int
    cycle: Cycle
    next_plan: EpochPlan | None = None


@message(50)
class SyncNow:
    """NCCL: enter the collectives of this cycle."""

    cycle: Cycle
    session: Session


@message(51)
class StartEpoch:
    """Begin with this plan; it replaces what is left of an older one."""

    plan: EpochPlan


@message(52)
class ExtendPartition:
    """Append these samples of `epoch` to the plan."""

    epoch: int
    offset: int
    size: int


@message(53)
class Cut:
    """Contribute at the next batch boundary, at once if holding; ends window and plan."""

    cycle: Cycle


@message(54)
class DeclareDead:
    """That rank is gone. On the CPU path a rank ignores it."""

    rank: Rank


@message(55)
class RequestNewNcclId:
    """The session before is over: say what was completed in it, and make a uid if asked to.

    Every survivor is asked; from then on it completes nothing in an older session.
    """

    session: Session
    makes_uid: bool = True
    """Whether this rank makes the communicator's uid."""


@message(56)
class NewNcclSession:
    """Survivors re-form."""

    session: Session
    uid: bytes
    new_rank: Rank
    """This rank's place among the members, from 0."""
    new_world_size: int
    consensus_from: Rank | None = None
    """Place of the member that completed the pending cycle and gives its consensus to all."""


@message(57)
class Throttle:
    """Do not start another batch before the next Update."""


@message(58)
class SetGlobalStep:
    """The number of batches that the cohort has committed."""

    n: int
    own_batches: int = 0
    """Batches of this rank from one average to the next, where no plan has a window; else 0."""
    cohort_batches: int = 0
    """Batches of the whole cohort in the same time."""


@message(59)
class Checkpoint:
    """Write what only a rank has, for the consensus of this version.

    Every alive rank is asked and answers with a CheckpointResult.
    """

    version: int
    target_rank: Rank
    """Only this one tells its integer and bool buffers."""
    with_rank_files: bool = True
    """Whether each rank writes its file; not for the initial broadcast, which saves nothing."""
    saved_version: int | None = None
    """The newest version whose save is complete; a newer file of a rank belongs to none."""
    publish: Cycle | None = None
    """On NCCL: the root's cycle in which the target rank brings the consensus to the launcher."""


@message(60)
class ExecuteEval:
    """Evaluate the consensus."""

    schedule_id: int
    epoch: int
    target_rank: Rank


@message(61)
class SetCallbackRole:
    """That rank runs the callbacks."""

    rank: Rank


@message(62)
class EpochAggregated:
    """An epoch is over for the cohort."""

    epoch: int
    loss: float | None = None
    samples: int


@message(63)
class CoordHeartbeat:
    """The coordinator lives."""


@message(64)
class Shutdown:
    """End cleanly: send Exiting, then exit 0."""


@message(65)
class ShutdownWithSave:
    """End cleanly after writing what only a rank has."""

    reason: SaveReason


@message(66)
class RestoreLocals:
    """Integer and bool buffers of the bundle that a run goes on from, before cycle 0."""

    local_buffers: dict[str, TensorBlob]
