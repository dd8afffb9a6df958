"""What a rank does next: the rank-side half of the schedule.

Messages of the coordinator and the rank's own events go in; `next_action` says what
to do. Not the training loop and not the transport: it trains nothing, sends nothing,
reads no clock. The training worker and the simulator drive it, one step at a time:

    for message in arrived: pacer.handle(message)
    perform(pacer.next_action())            # answer with the action's event

    a cycle, as this rank sees it:

    none ──RequestParams, Cut──▶ REQUESTED ──TakeSnapshot──▶ IN_ROUNDS
      ▲                                                        │ CycleAdopted
      └─SetGlobalStep── (none) ◀──Update of that cycle── ADOPTED ◀┘

Two holds keep a rank from training. The *window* hold: it did `window_batches` since its
snapshot; a snapshot or StartEpoch ends it. The *cycle* hold: from the snapshot to the
Update of that cycle, whatever else arrives, because relay or root read its slot. A
released rank trains on when the SetGlobalStep that goes with every Update is here, so
that the step which a scheduler sees depends on no race.

A rank whose plan has a window of 0 *runs on*: its snapshot is a copy, so it has neither
hold and trains during the rounds whatever its plan has left, unless its values were not
finite. What else is asked of it waits for the end of the rounds.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flodl_core.dispatch.actions import (
    Action,
    AwaitRounds,
    BatchFinished,
    CheckpointWritten,
    CycleAdopted,
    CycleStage,
    EvalFinished,
    Hold,
    HoldReason,
    Leave,
    PacerEvent,
    ReportEpoch,
    RunEval,
    SnapshotDeclared,
    TakeSnapshot,
    TrainBatch,
    WriteCheckpoint,
    checkpoint_for,
    cut_batches,
)
from flodl_core.dispatch.ranges import Range, total_size
from flodl_core.dispatch.step_clock import StepClock
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Cycle, Rank
from flodl_core.machines import Note, NoteValue
from flodl_core.messages import control

_INITIAL_BROADCAST = Cycle(0)


@dataclass(slots=True)
class _Pending:
    """The one cycle that this rank is in."""

    cycle: Cycle
    stage: CycleStage = CycleStage.REQUESTED
    declared: bool = False


def _note(code: str, **fields: NoteValue) -> list[Note]:
    return [Note(code=code, fields=fields)]


class RankPacer:
    """The schedule of one rank.

    Args:
        rank: which rank this is; rank 0 alone has mass in cycle 0.
        batch_size: samples of a batch, 1 or more; the last one of a range may be smaller.

    Raises:
        LocalProtocolError: batch_size is below 1.
    """

    def __init__(self, rank: Rank, batch_size: int) -> None:
        if batch_size < 1:
            raise LocalProtocolError(f"a pacer with batch size {batch_size}; expected 1 or more")
        self.rank = rank
        self.batch_size = batch_size
        self._plan: control.EpochPlan | None = None
        self._left: deque[Range] = deque()
        self._window_batches = 0
        self._applied_batches = 0
        self._uncommitted_samples = 0
        self._pending: _Pending | None = None
        self._last_cycle = -1
        self._steps = StepClock()
        self._throttled = False
        self._checkpoints: deque[WriteCheckpoint] = deque()
        self._evals: deque[tuple[int, int]] = deque()
        self._unreported: dict[int, int] = {}
        self._aggregated_epoch = -1
        self._busy: TrainBatch | WriteCheckpoint | RunEval | None = None
        self._leave: Leave | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch of the current plan; None before the first."""
        return self._plan.epoch if self._plan else None

    @property
    def cycle(self) -> Cycle | None:
        """The cycle that this rank is in; None if it is in none."""
        return self._pending.cycle if self._pending else None

    @property
    def stage(self) -> CycleStage | None:
        """How far that cycle is; None if it is in none."""
        return self._pending.stage if self._pending else None

    @property
    def samples_left(self) -> int:
        """Samples of the plan that are not drawn yet."""
        return total_size(self._left)

    @property
    def uncommitted_samples(self) -> int:
        """Samples drawn since the last snapshot."""
        return self._uncommitted_samples

    @property
    def global_step(self) -> int:
        """Batches that the cohort has done, for the scheduler of the next batch.

        The committed number at the start of the window; inside it, every own batch that
        was applied counts for its share of the cohort's window.
        """
        return self._steps.now(self._applied_batches)

    @property
    def runs_on(self) -> bool:
        """Whether this rank trains on while its snapshot is averaged."""
        return self._plan is not None and self._plan.window_batches == 0

    @property
    def fills_window(self) -> bool:
        """Whether the batch that ended last is the one that an average waits for."""
        return 0 < self._steps.own_batches == self._window_batches

    def upcoming(self, count: int) -> tuple[TrainBatch, ...]:
        """Return the plan's next batches, at most `count`; none is drawn, and none promised."""
        return cut_batches(self._left, count, epoch=self.epoch or 0, batch_size=self.batch_size)

    def handle(self, event: object) -> list[Note]:
        """Take one control message or one rank-side event.

        Returns:
            Notes about what was stale, unknown or not for this rank, and about a plan that
            was replaced, or its epoch aggregated, with samples left.

        Raises:
            LocalProtocolError: an event answers no action under way, or with other numbers.
        """
        handler = _HANDLERS.get(type(event))
        if handler is None:
            return _note("not_for_pacer", event=type(event).__name__)
        return handler(self, event)

    def next_action(self) -> Action:
        """Return what to do now.

        Holds, AwaitRounds and Leave are returned as long as they are true. Every other
        action is returned once and counts as begun; while TrainBatch, WriteCheckpoint
        or RunEval is under way the answer is Hold(BUSY).
        """
        if self._busy is not None:
            return Hold(HoldReason.BUSY)
        if self._leave is not None:
            return self._leave
        action = self._cycle_action() or self._errand()
        if action is None and self._pending is not None and not self.runs_on:
            return Hold(HoldReason.AWAITS_UPDATE)
        return action or self._report() or self._hold() or self._begin_batch()

    def _cycle_action(self) -> Action | None:
        pending = self._pending
        if pending is None or pending.stage is CycleStage.ADOPTED:
            return None
        if pending.stage is CycleStage.IN_ROUNDS:
            trains = self.runs_on and not pending.declared and self._hold() is None
            return self._begin_batch() if trains else AwaitRounds(pending.cycle)
        n, samples = self._applied_batches, self._uncommitted_samples
        if pending.cycle == _INITIAL_BROADCAST:
            n = 1 if self.rank == Rank(0) else 0
        self._steps.close(self._applied_batches, trains_on=self.runs_on)
        self._applied_batches = self._uncommitted_samples = self._window_batches = 0
        pending.stage = CycleStage.IN_ROUNDS
        return TakeSnapshot(pending.cycle, n, samples)

    def _errand(self) -> Action | None:
        if self._checkpoints:
            if report := self._report(before_save=True):
                return report
            self._busy = self._checkpoints.popleft()
        elif self._evals:
            self._busy = RunEval(*self._evals.popleft())
        return self._busy

    def _report(self, *, before_save: bool = False) -> Action | None:
        if self._uncommitted_samples or (self._pending is not None and not before_save):
            return None
        for epoch, samples in self._unreported.items():
            if epoch != self.epoch or not self._left or (before_save and samples):
                del self._unreported[epoch]
                return ReportEpoch(epoch)
        return None

    def _hold(self) -> Hold | None:
        if self._plan is None:
            return Hold(HoldReason.NO_PLAN)
        if 0 < self._plan.window_batches <= self._window_batches:
            return Hold(HoldReason.WINDOW_FULL)
        if not self._left:
            return Hold(HoldReason.PLAN_USED_UP)
        if self._throttled:
            return Hold(HoldReason.THROTTLED)
        if self._steps.known or self.runs_on:
            return None
        return Hold(HoldReason.AWAITS_GLOBAL_STEP)

    def _begin_batch(self) -> Action:
        assert self._plan is not None
        head, tail = self._left.popleft().split(self.batch_size)
        if tail.size:
            self._left.appendleft(tail)
        self._busy = TrainBatch(self._plan.epoch, head.offset, head.size)
        return self._busy

    def _request_params(self, event: control.RequestParams | control.SyncNow) -> list[Note]:
        return self._begin_cycle(event.cycle)

    def _cut(self, event: control.Cut) -> list[Note]:
        if not (notes := self._begin_cycle(event.cycle)):
            self._left.clear()
        return notes

    def _begin_cycle(self, cycle: Cycle) -> list[Note]:
        if self._pending is not None:
            return _note("cycle_already_pending", cycle=cycle, pending=self._pending.cycle)
        if cycle <= self._last_cycle:
            return _note("cycle_is_over", cycle=cycle, last=self._last_cycle)
        self._pending = _Pending(cycle)
        return []

    def _update(self, event: control.Update) -> list[Note]:
        pending = self._pending
        if pending is None or pending.cycle != event.cycle:
            waits_for = pending.cycle if pending else None
            return _note("update_of_another_cycle", cycle=event.cycle, pending=waits_for)
        if pending.stage is not CycleStage.ADOPTED:
            return _note("update_before_adoption", cycle=event.cycle, stage=pending.stage)
        self._pending = None
        self._last_cycle = event.cycle
        self._throttled = False
        return self._take_plan(event.next_plan) if event.next_plan else []

    def _start_epoch(self, event: control.StartEpoch) -> list[Note]:
        return self._take_plan(event.plan)

    def _take_plan(self, plan: control.EpochPlan) -> list[Note]:
        if self._plan is not None and plan.epoch < self._plan.epoch:
            return _note("plan_of_a_past_epoch", epoch=plan.epoch, current=self._plan.epoch)
        notes = []
        if self._left:
            notes = _note("plan_replaced", epoch=self.epoch, samples_left=self.samples_left)
        self._plan = plan
        self._steps.take_plan(plan)
        self._left = deque([Range(plan.offset, plan.size)] if plan.size else [])
        self._window_batches = 0
        self._owe_report(plan.epoch)
        return notes

    def _extend(self, event: control.ExtendPartition) -> list[Note]:
        if event.epoch != self.epoch:
            return _note("extension_of_another_epoch", epoch=event.epoch, current=self.epoch)
        if event.epoch <= self._aggregated_epoch:
            return _note("extension_of_an_aggregated_epoch", epoch=event.epoch)
        if event.size < 1:
            return _note("extension_is_empty", epoch=event.epoch, size=event.size)
        self._left.append(Range(event.offset, event.size))
        return []

    def _set_global_step(self, event: control.SetGlobalStep) -> list[Note]:
        self._steps.tell(event)
        return []

    def _throttle(self, _event: control.Throttle) -> list[Note]:
        self._throttled = True
        return []

    def _checkpoint(self, event: control.Checkpoint) -> list[Note]:
        self._checkpoints.append(checkpoint_for(self.rank, event))
        return []

    def _execute_eval(self, event: control.ExecuteEval) -> list[Note]:
        if event.target_rank != self.rank:
            return _note("eval_of_another_rank", target=event.target_rank)
        self._evals.append((event.schedule_id, event.epoch))
        return []

    def _epoch_aggregated(self, event: control.EpochAggregated) -> list[Note]:
        if event.epoch == self.epoch and self._left:
            return _note(
                "aggregated_with_work_left", epoch=event.epoch, samples_left=self.samples_left
            )
        self._aggregated_epoch = max(self._aggregated_epoch, event.epoch)
        return []

    def _changes_nothing(self, event: object) -> list[Note]:
        return _note("schedule_stays", message=type(event).__name__)

    def _end(self, event: control.Shutdown | control.ShutdownWithSave) -> list[Note]:
        if self._leave is not None:
            return _note("already_leaving", reason=self._leave.save_reason)
        self._leave = Leave(event.reason if isinstance(event, control.ShutdownWithSave) else None)
        return []

    def _batch_finished(self, event: BatchFinished) -> list[Note]:
        busy = self._busy
        if not isinstance(busy, TrainBatch) or busy.size != event.samples:
            raise self._unasked(event)
        self._busy = None
        self._window_batches += 1
        self._applied_batches += 1 if event.applied else 0
        self._uncommitted_samples += event.samples
        self._owe_report(busy.epoch, event.samples)
        return []

    def _snapshot_declared(self, event: SnapshotDeclared) -> list[Note]:
        self._in_rounds(event).declared = True
        return []

    def _cycle_adopted(self, event: CycleAdopted) -> list[Note]:
        self._in_rounds(event).stage = CycleStage.ADOPTED
        return []

    def _in_rounds(self, event: SnapshotDeclared | CycleAdopted) -> _Pending:
        pending = self._pending
        expected = pending is not None and pending.stage is CycleStage.IN_ROUNDS
        if pending is None or not expected or pending.cycle != event.cycle:
            raise self._unasked(event)
        return pending

    def _checkpoint_written(self, event: CheckpointWritten) -> list[Note]:
        if not isinstance(self._busy, WriteCheckpoint) or self._busy.version != event.version:
            raise self._unasked(event)
        self._busy = None
        return []

    def _eval_finished(self, event: EvalFinished) -> list[Note]:
        if not isinstance(self._busy, RunEval) or self._busy.schedule_id != event.schedule_id:
            raise self._unasked(event)
        self._busy = None
        return []

    def _owe_report(self, epoch: int, samples: int = 0) -> None:
        self._unreported[epoch] = self._unreported.get(epoch, 0) + samples

    def _unasked(self, event: PacerEvent) -> LocalProtocolError:
        doing = self._busy or self._pending or "nothing"
        return LocalProtocolError(
            f"rank {self.rank}: {event} answers no action; under way: {doing}"
        )


_HANDLERS: dict[type, Callable[..., list[Note]]] = {
    control.RequestParams: RankPacer._request_params,
    control.SyncNow: RankPacer._request_params,
    control.Cut: RankPacer._cut,
    control.Update: RankPacer._update,
    control.StartEpoch: RankPacer._start_epoch,
    control.ExtendPartition: RankPacer._extend,
    control.SetGlobalStep: RankPacer._set_global_step,
    control.Throttle: RankPacer._throttle,
    control.Checkpoint: RankPacer._checkpoint,
    control.ExecuteEval: RankPacer._execute_eval,
    control.EpochAggregated: RankPacer._epoch_aggregated,
    control.DeclareDead: RankPacer._changes_nothing,
    control.RequestNewNcclId: RankPacer._changes_nothing,
    control.NewNcclSession: RankPacer._changes_nothing,
    control.Shutdown: RankPacer._end,
    control.ShutdownWithSave: RankPacer._end,
    BatchFinished: RankPacer._batch_finished,
    SnapshotDeclared: RankPacer._snapshot_declared,
    CycleAdopted: RankPacer._cycle_adopted,
    CheckpointWritten: RankPacer._checkpoint_written,
    EvalFinished: RankPacer._eval_finished,
}
