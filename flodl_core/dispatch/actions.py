"""The words between a rank's pacer and whoever performs for it.

Rank-side events are past tense, actions are what to do next. Not messages: none of
these crosses a process. The training worker and the simulator use them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from flodl_core.dispatch.ranges import Range
from flodl_core.ids import Cycle, Rank, SaveReason, SyncOutcome
from flodl_core.messages.control import Checkpoint


class HoldReason(StrEnum):
    """Why a rank does nothing now."""

    BUSY = "busy"
    """The action returned last has not been reported as finished."""
    NO_PLAN = "no_plan"
    """No epoch was started yet."""
    PLAN_USED_UP = "plan_used_up"
    """Every sample of the plan is drawn."""
    WINDOW_FULL = "window_full"
    """It did its batches since its snapshot."""
    THROTTLED = "throttled"
    AWAITS_UPDATE = "awaits_update"
    """It finished the pending cycle; only that cycle's Update releases it."""
    AWAITS_GLOBAL_STEP = "awaits_global_step"
    """Released, but the window's SetGlobalStep is not here yet."""


class CycleStage(StrEnum):
    """How far the pending cycle is on this rank."""

    REQUESTED = "requested"
    IN_ROUNDS = "in_rounds"
    ADOPTED = "adopted"


@dataclass(frozen=True, slots=True)
class BatchFinished:
    """The batch of the last TrainBatch is done.

    Attributes:
        samples: samples drawn for it.
        applied: whether the optimizer step was applied; False after a scaler skip.
    """

    samples: int
    applied: bool


@dataclass(frozen=True, slots=True)
class SnapshotDeclared:
    """The snapshot of the cycle is not finite: training on from such values is in vain."""

    cycle: Cycle


@dataclass(frozen=True, slots=True)
class CycleAdopted:
    """The rounds of the cycle are over for this rank, and it adopted or kept its values."""

    cycle: Cycle
    outcome: SyncOutcome


@dataclass(frozen=True, slots=True)
class EvalFinished:
    """The evaluation of the last RunEval is done, well or not."""

    schedule_id: int


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """The last WriteCheckpoint is answered, well or not."""

    version: int


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """Draw these positions of the pass of `epoch` and step once; answer with BatchFinished."""

    epoch: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Put the state into the slot, then say Ready and SnapshotReady. Returned once a cycle.

    Attributes:
        cycle: the cycle that asked.
        n: applied batches since the last snapshot; 1 on rank 0 in cycle 0. Send 0
            instead, and no masses, if the values are not finite.
        samples: samples drawn since the last snapshot.
    """

    cycle: Cycle
    n: int
    samples: int


@dataclass(frozen=True, slots=True)
class AwaitRounds:
    """Wait for the rounds of the cycle, adopt, send SyncAck; answer with CycleAdopted.

    It is returned until then, so that messages may be handled in between. Where ranks run
    on it is returned only while there is nothing to train.
    """

    cycle: Cycle


@dataclass(frozen=True, slots=True)
class ReportEpoch:
    """Send a MetricsMsg of `epoch` with the totals since the previous one.

    Returned once the plan is used up and all is committed, and before a checkpoint.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """Write what only this rank has, send CheckpointResult; answer with CheckpointWritten.

    Attributes:
        version: of the consensus that it goes with.
        tells_locals: whether the answer holds the integer and bool buffers.
        writes_file: whether a rank file is written.
        publish: the root's cycle in which the consensus is brought to it; None where it has it.
    """

    version: int
    tells_locals: bool = True
    writes_file: bool = True
    publish: Cycle | None = None


@dataclass(frozen=True, slots=True)
class RunEval:
    """Evaluate the consensus, send EvalResult; answer with EvalFinished."""

    schedule_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing to do until the next message or event."""

    reason: HoldReason


@dataclass(frozen=True, slots=True)
class Leave:
    """Send Exiting and end. Returned for ever after.

    Attributes:
        save_reason: why committed state was or is to be saved; None after a plain Shutdown.
    """

    save_reason: SaveReason | None


def checkpoint_for(rank: Rank, order: Checkpoint) -> WriteCheckpoint:
    """Return a rank's part in a save that all ranks are asked for."""
    is_target = order.target_rank == rank
    return WriteCheckpoint(order.version, is_target, order.with_rank_files, order.publish)


def cut_batches(
    left: Iterable[Range], count: int, *, epoch: int, batch_size: int
) -> tuple[TrainBatch, ...]:
    """Return the first batches of what is left of a plan.

    Args:
        left: in the order in which it is drawn; a batch never spans two of them.
        count: of batches, at most.
        epoch: event number of the plan.
        batch_size: samples of a batch; the last one of a range may be smaller.
    """
    found: list[TrainBatch] = []
    for part in left:
        for offset in range(part.offset, part.end, batch_size):
            if len(found) >= count:
                return tuple(found)
            found.append(TrainBatch(epoch, offset, min(batch_size, part.end - offset)))
    return tuple(found)


PacerEvent = BatchFinished | SnapshotDeclared | CycleAdopted | EvalFinished | CheckpointWritten
Action = (
    TrainBatch | TakeSnapshot | AwaitRounds | ReportEpoch | WriteCheckpoint | RunEval | Hold | Leave
)
