"""A rank's schedule, one sentence at a time."""

import pytest

from flodl_core.dispatch.actions import (
    AwaitRounds,
    BatchFinished,
    CheckpointWritten,
    CycleAdopted,
    CycleStage,
    EvalFinished,
    Hold,
    HoldReason,
    Leave,
    ReportEpoch,
    RunEval,
    SnapshotDeclared,
    TakeSnapshot,
    TrainBatch,
    WriteCheckpoint,
)
from flodl_core.dispatch.pacer import RankPacer
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import SaveReason, SyncOutcome
from flodl_core.messages.control import (
    Checkpoint,
    CoordHeartbeat,
    Cut,
    DeclareDead,
    EpochAggregated,
    EpochPlan,
    ExecuteEval,
    ExtendPartition,
    RequestParams,
    SetGlobalStep,
    Shutdown,
    ShutdownWithSave,
    StartEpoch,
    SyncNow,
    Throttle,
    Update,
)

COMMITTED = SyncOutcome.COMMITTED


def plan(offset, size, *, epoch=0, window=1, cohort=0):
    return EpochPlan(
        epoch=epoch, offset=offset, size=size, window_batches=window, cohort_batches=cohort
    )


def hold(reason):
    return Hold(HoldReason(reason))


class Script:
    """A pacer with short words; a message that brings notes is a failure unless asked for."""

    def __init__(self, rank=0, batch_size=4):
        self.pacer = RankPacer(rank, batch_size)

    def tell(self, *events):
        for event in events:
            assert self.pacer.handle(event) == []
        return self

    def codes(self, event):
        return [note.code for note in self.pacer.handle(event)]

    def next(self):
        return self.pacer.next_action()

    def train(self, *, applied=True):
        action = self.next()
        assert isinstance(action, TrainBatch)
        self.tell(BatchFinished(action.size, applied))
        return action

    def cycle(self, cycle, *, step=0, outcome=COMMITTED, next_plan=None):
        """One whole cycle, from RequestParams to the release."""
        self.tell(RequestParams(cycle=cycle))
        snapshot = self.next()
        assert isinstance(snapshot, TakeSnapshot)
        self.tell(CycleAdopted(cycle, outcome))
        self.tell(Update(version=cycle, cycle=cycle, next_plan=next_plan), SetGlobalStep(n=step))
        return snapshot


def started(*, rank=0, size=16, window=1, epoch=0):
    script = Script(rank)
    script.cycle(0)
    return script.tell(StartEpoch(plan=plan(0, size, epoch=epoch, window=window)))


def test_before_anything_arrives_a_rank_holds_without_a_plan():
    assert Script().next() == hold("no_plan")


@pytest.mark.parametrize(("rank", "n"), [(0, 1), (1, 0), (7, 0)])
def test_in_cycle_zero_only_rank_zero_has_mass(rank, n):
    assert Script(rank).cycle(0) == TakeSnapshot(0, n, 0)


def test_a_cycle_is_snapshot_rounds_adoption_and_its_update():
    script = started()
    script.train()
    assert script.next() == hold("window_full")
    script.tell(RequestParams(cycle=1))
    assert script.pacer.stage is CycleStage.REQUESTED
    assert script.next() == TakeSnapshot(1, 1, 4)
    assert script.next() == AwaitRounds(1)
    assert script.next() == AwaitRounds(1)
    assert script.pacer.stage is CycleStage.IN_ROUNDS
    script.tell(CycleAdopted(1, COMMITTED))
    assert script.next() == hold("awaits_update")
    script.tell(Update(version=1, cycle=1))
    assert script.next() == hold("awaits_global_step")
    script.tell(SetGlobalStep(n=4))
    assert script.next() == TrainBatch(0, 4, 4)


def test_batches_follow_the_plan_and_never_span_ranges():
    script = started(size=6, window=0)
    script.tell(ExtendPartition(epoch=0, offset=6, size=5))
    assert [script.train() for _ in range(4)] == [
        TrainBatch(0, 0, 4),
        TrainBatch(0, 4, 2),
        TrainBatch(0, 6, 4),
        TrainBatch(0, 10, 1),
    ]
    assert script.next() == hold("plan_used_up")


def test_a_window_of_several_batches_holds_after_the_last():
    script = started(window=3)
    for _ in range(3):
        script.train()
    assert script.next() == hold("window_full")
    assert script.cycle(1) == TakeSnapshot(1, 3, 12)


def test_a_request_in_mid_batch_waits_for_the_batch_boundary():
    script = started(window=2)
    batch = script.next()
    script.tell(RequestParams(cycle=1))
    assert script.next() == hold("busy")
    script.tell(BatchFinished(batch.size, True))
    assert script.next() == TakeSnapshot(1, 1, 4)


def test_a_skipped_step_counts_its_samples_but_not_its_step():
    script = started(window=2)
    script.train(applied=False)
    script.train()
    assert script.cycle(1) == TakeSnapshot(1, 1, 8)


def test_a_rank_without_work_takes_part_with_nothing():
    script = started(size=0)
    assert script.cycle(1) == TakeSnapshot(1, 0, 0)


def test_the_next_contribution_counts_from_the_snapshot():
    script = started()
    script.train()
    script.cycle(1)
    script.train()
    assert script.cycle(2) == TakeSnapshot(2, 1, 4)


@pytest.mark.parametrize("outcome", list(SyncOutcome))
def test_however_a_cycle_ends_the_rank_trains_on(outcome):
    script = started()
    script.train()
    script.cycle(1, outcome=outcome)
    assert script.next() == TrainBatch(0, 4, 4)


def test_only_the_update_of_the_pending_cycle_releases():
    script = started(size=4)
    script.train()
    script.tell(RequestParams(cycle=1))
    script.next()
    assert script.codes(Update(version=1, cycle=1)) == ["update_before_adoption"]
    script.tell(CycleAdopted(1, COMMITTED))
    assert script.codes(Update(version=2, cycle=2)) == ["update_of_another_cycle"]
    script.tell(SetGlobalStep(n=9), StartEpoch(plan=plan(0, 8, epoch=1)))
    assert script.next() == hold("awaits_update")
    script.tell(Update(version=1, cycle=1))
    assert script.next() == ReportEpoch(0)
    assert script.next() == TrainBatch(1, 0, 4)
    assert script.codes(Update(version=1, cycle=1)) == ["update_of_another_cycle"]


def test_an_update_without_any_cycle_changes_nothing():
    assert Script().codes(Update(version=0, cycle=0)) == ["update_of_another_cycle"]


def test_the_global_step_may_come_before_the_update():
    script = started()
    script.train()
    script.tell(RequestParams(cycle=1))
    script.next()
    script.tell(CycleAdopted(1, COMMITTED), SetGlobalStep(n=2), Update(version=1, cycle=1))
    assert isinstance(script.next(), TrainBatch)


@pytest.mark.parametrize("make", [RequestParams, Cut])
def test_a_cycle_is_entered_once(make):
    script = started()
    script.tell(make(cycle=1))
    assert script.codes(make(cycle=1)) == ["cycle_already_pending"]
    assert script.codes(make(cycle=2)) == ["cycle_already_pending"]
    assert script.pacer.cycle == 1
    script.next()
    script.tell(CycleAdopted(1, COMMITTED), Update(version=1, cycle=1))
    assert script.codes(make(cycle=1)) == ["cycle_is_over"]
    assert script.pacer.cycle is None


def test_a_refused_cut_leaves_the_plan_alone():
    script = started()
    assert script.codes(Cut(cycle=0)) == ["cycle_is_over"]
    assert script.pacer.samples_left == 16


def test_a_cut_ends_window_and_plan_at_the_next_boundary():
    script = started(size=40, window=5)
    script.train()
    batch = script.next()
    script.tell(Cut(cycle=1))
    script.tell(BatchFinished(batch.size, True))
    assert script.next() == TakeSnapshot(1, 2, 8)
    assert script.pacer.samples_left == 0
    script.tell(CycleAdopted(1, COMMITTED))
    script.tell(Update(version=1, cycle=1, next_plan=plan(100, 8, window=2)), SetGlobalStep(n=0))
    assert script.next() == TrainBatch(0, 100, 4)


def test_a_cut_of_a_holding_rank_contributes_at_once():
    script = started()
    script.train()
    assert script.next() == hold("window_full")
    script.tell(Cut(cycle=1))
    assert script.next() == TakeSnapshot(1, 1, 4)


def test_the_next_plan_of_an_update_begins_the_next_window():
    script = started(size=8, window=2)
    script.train()
    script.train()
    script.cycle(1, next_plan=plan(32, 12, window=3))
    assert [script.train().offset for _ in range(3)] == [32, 36, 40]
    assert script.next() == hold("window_full")


def test_starting_an_epoch_ends_the_window_hold_but_keeps_the_count():
    script = started()
    script.train()
    assert script.next() == hold("window_full")
    assert script.codes(StartEpoch(plan=plan(0, 8, epoch=1))) == ["plan_replaced"]
    assert script.train() == TrainBatch(1, 0, 4)
    assert script.cycle(1) == TakeSnapshot(1, 2, 8)


def test_a_plan_of_a_past_epoch_changes_nothing():
    script = started(epoch=2)
    assert script.codes(StartEpoch(plan=plan(0, 4, epoch=1))) == ["plan_of_a_past_epoch"]
    assert script.next() == TrainBatch(2, 0, 4)


@pytest.mark.parametrize(
    ("extension", "code"),
    [
        (ExtendPartition(epoch=1, offset=0, size=4), "extension_of_another_epoch"),
        (ExtendPartition(epoch=0, offset=0, size=0), "extension_is_empty"),
    ],
)
def test_an_extension_that_fits_nothing_changes_nothing(extension, code):
    script = started()
    assert script.codes(extension) == [code]
    assert script.pacer.samples_left == 16


def test_an_extension_after_the_epoch_was_aggregated_is_late():
    script = started(size=0)
    script.tell(EpochAggregated(epoch=0, samples=0))
    extension = ExtendPartition(epoch=0, offset=0, size=4)
    assert script.codes(extension) == ["extension_of_an_aggregated_epoch"]


def test_an_epoch_aggregated_with_work_left_is_told():
    assert started().codes(EpochAggregated(epoch=0, samples=16)) == ["aggregated_with_work_left"]


def test_a_rank_reports_the_epoch_once_when_its_plan_is_used_up_and_committed():
    script = started(size=8)
    script.train()
    script.cycle(1)
    script.train()
    assert script.next() == hold("window_full")
    script.cycle(2)
    assert script.next() == ReportEpoch(0)
    assert script.next() == hold("plan_used_up")


def test_a_rank_with_an_empty_plan_reports_at_once():
    script = started(size=0)
    assert script.next() == ReportEpoch(0)
    assert script.next() == hold("plan_used_up")


def test_work_that_comes_after_the_report_is_reported_again():
    script = started(size=0)
    assert script.next() == ReportEpoch(0)
    script.tell(ExtendPartition(epoch=0, offset=40, size=4))
    assert script.train() == TrainBatch(0, 40, 4)
    script.cycle(1)
    assert script.next() == ReportEpoch(0)
    assert script.next() == hold("plan_used_up")


def test_a_report_waits_until_nothing_is_uncommitted():
    script = started(size=4, window=2)
    script.train()
    assert script.next() == hold("plan_used_up")
    assert script.pacer.uncommitted_samples == 4
    script.cycle(1)
    assert script.next() == ReportEpoch(0)


def test_an_epoch_left_behind_is_reported_before_the_next_one_goes_on():
    script = started(size=8, window=1)
    script.train()
    script.tell(RequestParams(cycle=1))
    script.next()
    script.tell(CycleAdopted(1, COMMITTED))
    update = Update(version=1, cycle=1, next_plan=plan(0, 8, epoch=1))
    assert script.codes(update) == ["plan_replaced"]
    script.tell(SetGlobalStep(n=1))
    assert script.next() == ReportEpoch(0)
    assert script.next() == TrainBatch(1, 0, 4)


def test_a_throttled_rank_waits_for_the_next_update():
    script = started(window=0)
    script.train()
    script.tell(Throttle())
    assert script.next() == hold("throttled")
    script.tell(SetGlobalStep(n=1))
    assert script.next() == hold("throttled")
    script.cycle(1)
    assert isinstance(script.next(), TrainBatch)


def test_a_checkpoint_is_written_before_the_rank_trains_on():
    script = started()
    script.train()
    script.tell(RequestParams(cycle=1))
    script.next()
    script.tell(CycleAdopted(1, COMMITTED), Checkpoint(version=1, target_rank=0))
    script.tell(Update(version=1, cycle=1), SetGlobalStep(n=1))
    assert script.next() == ReportEpoch(0)
    assert script.next() == WriteCheckpoint(1)
    assert script.next() == hold("busy")
    script.tell(CheckpointWritten(1))
    assert isinstance(script.next(), TrainBatch)


def test_a_rank_reports_what_it_trained_of_the_epoch_before_it_writes_a_checkpoint():
    script = started()
    script.train()
    script.tell(RequestParams(cycle=1))
    script.next()
    script.tell(CycleAdopted(1, COMMITTED), Checkpoint(version=1, target_rank=0))
    assert script.next() == ReportEpoch(0)
    assert script.next() == WriteCheckpoint(1)
    script.tell(CheckpointWritten(1), Checkpoint(version=1, target_rank=0))
    assert script.next() == WriteCheckpoint(1)  # nothing was trained since


def test_a_rank_with_samples_that_no_average_has_reports_nothing_before_a_checkpoint():
    script = started(window=0)
    script.train()
    script.tell(Checkpoint(version=0, target_rank=0))
    assert script.next() == WriteCheckpoint(0)


def test_a_checkpoint_is_written_while_the_update_is_awaited():
    script = Script()
    script.tell(RequestParams(cycle=0))
    script.next()
    script.tell(Checkpoint(version=0, target_rank=0))
    assert script.next() == AwaitRounds(0)
    script.tell(CycleAdopted(0, COMMITTED))
    assert script.next() == WriteCheckpoint(0)
    script.tell(CheckpointWritten(0))
    assert script.next() == hold("awaits_update")


def test_an_evaluation_runs_after_the_checkpoint_and_before_training():
    script = started()
    script.tell(ExecuteEval(schedule_id=3, epoch=0, target_rank=0))
    script.tell(Checkpoint(version=0, target_rank=0))
    assert script.next() == WriteCheckpoint(0)
    script.tell(CheckpointWritten(0))
    assert script.next() == RunEval(3, 0)
    script.tell(EvalFinished(3))
    assert isinstance(script.next(), TrainBatch)


def test_every_rank_writes_its_file_and_only_the_target_tells_its_buffers():
    script = started()
    script.tell(Checkpoint(version=0, target_rank=1))
    assert script.next() == WriteCheckpoint(0, tells_locals=False, writes_file=True)
    script.tell(CheckpointWritten(0))
    script.tell(Checkpoint(version=0, target_rank=0, with_rank_files=False))
    assert script.next() == WriteCheckpoint(0, tells_locals=True, writes_file=False)


def test_an_evaluation_for_another_rank_is_left_to_it():
    script = started()
    order = ExecuteEval(schedule_id=0, epoch=0, target_rank=1)
    assert script.codes(order) == ["eval_of_another_rank"]
    assert isinstance(script.next(), TrainBatch)


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (Shutdown(), None),
        (ShutdownWithSave(reason=SaveReason.REDUCE_STALL), SaveReason.REDUCE_STALL),
    ],
)
def test_a_rank_leaves_at_the_next_boundary_even_in_a_cycle(order, reason):
    script = started()
    batch = script.next()
    script.tell(RequestParams(cycle=1), order)
    assert script.next() == hold("busy")
    script.tell(BatchFinished(batch.size, True))
    assert script.next() == Leave(reason)
    assert script.next() == Leave(reason)
    assert script.codes(Shutdown()) == ["already_leaving"]
    assert script.next() == Leave(reason)


def test_a_rank_that_waits_for_rounds_leaves_when_told():
    script = started()
    script.tell(RequestParams(cycle=1))
    script.next()
    script.tell(Shutdown())
    assert script.next() == Leave(None)


def test_a_cycle_on_nccl_is_a_cycle():
    script = started()
    script.tell(SyncNow(cycle=1, session=3))
    assert isinstance(script.next(), TakeSnapshot)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (DeclareDead(rank=2), "schedule_stays"),
        (CoordHeartbeat(), "not_for_pacer"),
        ("text", "not_for_pacer"),
    ],
)
def test_what_is_not_for_the_schedule_is_noted_and_changes_nothing(message, code):
    script = started()
    assert script.codes(message) == [code]
    assert script.next() == TrainBatch(0, 0, 4)


def test_the_global_step_is_the_committed_one_at_the_start_of_a_window():
    script = started()
    script.train()
    script.cycle(1, step=40)
    assert script.pacer.global_step == 40


def test_inside_a_window_the_global_step_advances_by_the_share_of_the_cohort():
    script = Script()
    script.cycle(0, step=100)
    script.tell(StartEpoch(plan=plan(0, 40, window=4, cohort=10)))
    steps = []
    for _ in range(4):
        steps.append(script.pacer.global_step)
        script.train()
    assert steps == [100, 102, 105, 107]
    assert script.pacer.global_step == 110


def test_untold_the_global_step_advances_by_one_and_not_for_a_skipped_step():
    script = started(window=0)
    script.train()
    script.train(applied=False)
    assert script.pacer.global_step == 1
    assert Script().pacer.global_step == 0


@pytest.mark.parametrize(
    "event",
    [
        BatchFinished(4, True),
        CycleAdopted(1, COMMITTED),
        CheckpointWritten(0),
        EvalFinished(0),
    ],
)
def test_an_event_that_answers_no_action_is_our_bug(event):
    with pytest.raises(LocalProtocolError, match="answers no action"):
        started().pacer.handle(event)


def test_an_event_with_other_numbers_is_our_bug():
    script = started()
    script.next()
    with pytest.raises(LocalProtocolError, match="under way: TrainBatch"):
        script.pacer.handle(BatchFinished(3, True))
    script.tell(BatchFinished(4, True), Checkpoint(version=0, target_rank=0))
    script.next()
    with pytest.raises(LocalProtocolError):
        script.pacer.handle(CheckpointWritten(1))
    script.tell(CheckpointWritten(0), RequestParams(cycle=1))
    with pytest.raises(LocalProtocolError):
        script.pacer.handle(CycleAdopted(1, COMMITTED))
    script.next()
    with pytest.raises(LocalProtocolError):
        script.pacer.handle(CycleAdopted(2, COMMITTED))


def test_a_batch_size_below_one_is_refused():
    with pytest.raises(LocalProtocolError, match="batch size 0"):
        RankPacer(0, 0)


def test_the_batches_ahead_are_those_that_will_be_drawn_and_asking_draws_none():
    script = started(size=6, window=0)
    script.tell(ExtendPartition(epoch=0, offset=6, size=5))
    ahead = script.pacer.upcoming(9)
    assert script.pacer.upcoming(9) == ahead
    assert script.pacer.upcoming(2) == ahead[:2] == (TrainBatch(0, 0, 4), TrainBatch(0, 4, 2))
    assert tuple(script.train() for _ in range(4)) == ahead
    assert script.pacer.upcoming(9) == ()


def test_a_cut_leaves_no_batches_ahead_and_the_next_plan_brings_new_ones():
    script = started(size=16, window=4)
    script.train()
    assert script.pacer.upcoming(1) == (TrainBatch(0, 4, 4),)
    script.tell(Cut(cycle=1))
    assert script.pacer.upcoming(1) == ()
    script.next()
    script.tell(CycleAdopted(1, COMMITTED))
    script.tell(Update(version=1, cycle=1, next_plan=plan(40, 4)))
    assert script.pacer.upcoming(4) == (TrainBatch(0, 40, 4),)


def test_before_any_plan_nothing_is_ahead():
    assert Script().pacer.upcoming(3) == ()


# where ranks run on


def running(*, size=32, own=0, cohort=0):
    script = Script()
    script.cycle(0)
    script.tell(SetGlobalStep(n=0, own_batches=own, cohort_batches=cohort))
    return script.tell(StartEpoch(plan=plan(0, size, window=0)))


def in_rounds(script, cycle=1):
    script.tell(RequestParams(cycle=cycle))
    snapshot = script.next()
    assert isinstance(snapshot, TakeSnapshot)
    return snapshot


def test_a_plan_without_a_window_is_trained_until_it_is_used_up():
    script = running(size=12)
    assert [script.train().offset for _ in range(3)] == [0, 4, 8]
    assert script.next() == hold("plan_used_up")


def test_a_rank_that_runs_on_trains_while_its_snapshot_is_averaged():
    script = running()
    script.train()
    script.train()
    assert in_rounds(script) == TakeSnapshot(1, 2, 8)
    assert script.train() == TrainBatch(0, 8, 4)
    script.tell(CycleAdopted(1, COMMITTED))
    assert script.train() == TrainBatch(0, 12, 4)
    script.tell(Update(version=1, cycle=1))
    assert script.train() == TrainBatch(0, 16, 4)


def test_the_next_snapshot_holds_all_that_was_trained_since_the_last_one():
    script = running()
    script.train()
    in_rounds(script)
    script.train()
    script.tell(CycleAdopted(1, COMMITTED), Update(version=1, cycle=1), SetGlobalStep(n=2))
    script.train()
    assert in_rounds(script, 2) == TakeSnapshot(2, 2, 8)


def test_a_rank_that_runs_on_waits_for_the_rounds_once_its_plan_is_used_up():
    script = running(size=8)
    script.train()
    in_rounds(script)
    script.train()
    assert script.next() == AwaitRounds(1)
    script.tell(ExtendPartition(epoch=0, offset=40, size=4))
    assert script.train() == TrainBatch(0, 40, 4)


def test_a_rank_whose_values_were_not_finite_trains_no_more_before_it_adopted():
    script = running()
    script.train()
    in_rounds(script)
    script.tell(SnapshotDeclared(1))
    assert script.next() == AwaitRounds(1)
    script.tell(CycleAdopted(1, SyncOutcome.DECLINED))
    assert script.train() == TrainBatch(0, 4, 4)


def test_only_the_snapshot_of_the_cycle_under_way_can_be_declared():
    script = running()
    with pytest.raises(LocalProtocolError):
        script.pacer.handle(SnapshotDeclared(1))
    in_rounds(script)
    with pytest.raises(LocalProtocolError):
        script.pacer.handle(SnapshotDeclared(2))


def test_errands_of_a_rank_that_runs_on_wait_for_the_end_of_the_rounds():
    script = running()
    script.train()
    in_rounds(script)
    script.tell(ExecuteEval(schedule_id=1, epoch=0, target_rank=0))
    script.tell(Checkpoint(version=1, target_rank=0))
    script.train()
    script.tell(CycleAdopted(1, COMMITTED))
    assert script.next() == WriteCheckpoint(1)
    script.tell(CheckpointWritten(1))
    assert script.next() == RunEval(1, 0)


def test_a_rank_that_runs_on_reports_only_what_is_committed():
    script = running(size=4)
    script.train()
    in_rounds(script)
    assert script.next() == AwaitRounds(1)
    script.tell(CycleAdopted(1, COMMITTED))
    assert script.next() == hold("plan_used_up")
    script.tell(Update(version=1, cycle=1))
    assert script.next() == ReportEpoch(0)


def test_a_cut_ends_the_plan_of_a_rank_that_runs_on():
    script = running()
    script.train()
    script.tell(Cut(cycle=1))
    assert script.next() == TakeSnapshot(1, 1, 4)
    assert script.next() == AwaitRounds(1)
    script.tell(CycleAdopted(1, COMMITTED))
    script.tell(Update(version=1, cycle=1, next_plan=plan(20, 8, window=0)))
    assert script.train() == TrainBatch(0, 20, 4)


def test_a_throttled_rank_that_runs_on_holds_until_the_update():
    script = running()
    script.train()
    script.tell(Throttle())
    assert script.next() == hold("throttled")
    in_rounds(script)
    assert script.next() == AwaitRounds(1)
    script.tell(CycleAdopted(1, COMMITTED))
    assert script.next() == hold("throttled")
    script.tell(Update(version=1, cycle=1))
    assert script.train() == TrainBatch(0, 4, 4)


def test_the_step_of_a_rank_that_runs_on_advances_through_the_average():
    script = running(own=2, cohort=10)
    steps = []
    for _ in range(2):
        steps.append(script.pacer.global_step)
        script.train()
    in_rounds(script)
    for _ in range(2):
        steps.append(script.pacer.global_step)
        script.train()
    assert steps == [0, 5, 10, 15]
    script.tell(CycleAdopted(1, COMMITTED), Update(version=1, cycle=1))
    script.tell(SetGlobalStep(n=11, own_batches=4, cohort_batches=8))
    assert script.pacer.global_step == 11 + 2 * 8 // 4


def test_a_rank_says_which_batch_the_average_waits_for():
    script = running(own=2, cohort=4)
    filled = []
    for _ in range(3):
        script.train()
        filled.append(script.pacer.fills_window)
    assert filled == [False, True, False]
