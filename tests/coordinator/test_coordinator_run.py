"""A run from its first Hello to its end, one message at a time."""

from coordinator_script import (
    Announce,
    DeclareRankDead,
    RaiseAlert,
    SaveBundle,
    Script,
    codes,
    control,
    ends,
    of,
    ranges,
    sent,
    tally,
)

from flodl_core.coordinator.events import CheckpointRequested, RoundEnded
from flodl_core.ids import Round, RoundOutcome
from flodl_core.ids import SyncOutcome as Sync
from flodl_core.messages import rendezvous, timing
from flodl_core.messages.data import RankTally


def test_roles_go_out_when_the_last_rank_has_said_hello():
    script = Script()
    assert not sent(script.hello(0) + script.hello(2), rendezvous.Role)
    roles = sent(script.hello(1), rendezvous.Role)
    assert [(rank, role.role) for rank, role in roles] == [
        (0, "generate"),
        (1, "wait"),
        (2, "wait"),
    ]


def test_the_generator_is_the_lowest_rank_of_the_launchers_own_host():
    script = Script((("red", 1), ("blue", 2)), local="blue")
    said = [effect for rank in range(3) for effect in script.hello(rank)]
    assert sent(said, rendezvous.Role, 1)[0].role == "generate"


def test_the_uid_reaches_the_waiters_and_cycle_0_begins_for_everybody():
    script = Script()
    for rank in range(3):
        script.hello(rank)
    uid = rendezvous.Uid(uid=bytes(range(128)))
    said = script.tell(0, uid)
    assert sent(said, rendezvous.Uid) == [(1, uid), (2, uid)]
    assert sent(said, control.RequestParams) == [
        (rank, control.RequestParams(cycle=0)) for rank in range(3)
    ]


def test_a_uid_of_a_waiter_or_of_a_wrong_size_is_a_note():
    script = Script()
    for rank in range(3):
        script.hello(rank)
    assert codes(script.tell(1, rendezvous.Uid(uid=bytes(128)))) == ["uid_out_of_place"]
    assert codes(script.tell(0, rendezvous.Uid(uid=b"short"))) == ["uid_of_wrong_size"]
    assert codes(script.hello(1)) == ["hello_out_of_place"]


def test_another_dataset_ends_the_run_and_names_the_rank():
    script = Script()
    end = ends(script.hello(1, dataset="e" * 64))
    assert end.exit_code == 1
    assert "rank 1 (cpu:1 on red)" in end.detail
    assert "dddddddd" in end.detail


def test_cycle_0_is_followed_by_checkpoint_update_global_step_and_plans_in_that_order():
    script = Script().rendezvous()
    for rank in range(3):
        script.ready(rank, 0, n=int(rank == 0), samples=0)
    script.rounds(0, [tally(rank, n=int(rank == 0), samples=0) for rank in range(3)])
    script.ack(0, 0)
    script.ack(1, 0)
    said = script.ack(2, 0)
    to_rank_0 = [effect.message for effect in said if getattr(effect, "rank", None) == 0]
    assert to_rank_0 == [
        control.Checkpoint(version=0, target_rank=0, with_rank_files=False),
        control.Update(version=0, cycle=0),
        control.SetGlobalStep(n=0),
        control.StartEpoch(
            plan=control.EpochPlan(epoch=0, offset=0, size=4, window_batches=1, cohort_batches=3)
        ),
    ]
    plans = [plan.plan for _, plan in sent(said, control.StartEpoch)]
    assert [(plan.offset, plan.size) for plan in plans] == [(0, 4), (4, 4), (8, 4)]


def test_a_window_is_triggered_settled_and_finished():
    script = Script().start()
    assert not sent(script.batch(0) + script.batch(1), control.RequestParams)
    assert len(sent(script.batch(2), control.RequestParams)) == 3
    for rank in range(3):
        script.ready(rank, 1)
    said = script.rounds(1, [tally(rank) for rank in range(3)])
    assert ranges(said) == {(0, 0, 2), (1, 4, 2), (2, 8, 2)}
    assert not sent(script.ack(0, 1) + script.ack(2, 1), control.Update)
    said = script.ack(1, 1)
    assert sent(said, control.Update, 1) == [control.Update(version=1, cycle=1)]
    assert sent(said, control.SetGlobalStep, 1) == [control.SetGlobalStep(n=3)]


def test_a_run_ends_with_a_save_and_a_shutdown():
    script = Script().start()
    script.cycle(1)
    script.cycle(2)
    assert not sent(script.metrics(0, 4) + script.metrics(1, 4), control.EpochAggregated)
    said = script.metrics(2, 4, loss=2.0)
    aggregated = sent(said, control.EpochAggregated, 0)[0]
    assert (aggregated.loss, aggregated.samples) == (1.0, 12)
    assert sent(said, control.Checkpoint, 0) == [control.Checkpoint(version=2, target_rank=0)]
    blob = timing.TensorBlob(dtype="int64", shape=(), data=bytes(8))
    assert not of(script.checkpoint_result(0, 2, buffers={"steps": blob}), SaveBundle)
    save = of(script.checkpoint_results(2, ranks=(1, 2)), SaveBundle)[0]
    assert (save.version, save.reason, save.local_buffers) == (
        2,
        "graceful_shutdown",
        {"steps": blob},
    )
    assert (save.facts.global_step, save.facts.epoch, save.facts.samples_trained) == (6, 1, 12)
    assert save.facts.coverage == ()
    said = script.saved(2)
    assert [rank for rank, _ in sent(said, control.Shutdown)] == [0, 1, 2]
    script.exiting(0)
    script.exiting(1)
    end = ends(script.exiting(2))
    assert (end.exit_code, end.reason) == (0, "finished")
    assert script.machine.deadline() is None
    assert codes(script.tick(1.0)) == ["run_has_ended"]


def test_a_failed_last_save_ends_with_exit_code_5():
    script = Script((("red", 1),), n_samples=2).start()
    script.cycle(1)
    script.metrics(0, 2)
    script.checkpoint_result(0, 1)
    said = script.saved(1, error="disk full")
    assert [alert.alert_class for alert in of(said, RaiseAlert)] == ["save_failed"]
    end = ends(script.exiting(0))
    assert end.exit_code == 5
    assert "disk full" in end.detail


def test_ranks_that_do_not_leave_are_left_behind():
    script = Script((("red", 2),), n_samples=4).start()
    script.cycle(1)
    script.metrics(0, 2)
    script.metrics(1, 2)
    script.checkpoint_results(1)
    script.saved(1)
    script.exiting(0)
    script.wait(24.0)
    assert not script.machine.ended
    script.forget()
    script.wait(2.0)
    assert ends(script.said).exit_code == 0
    assert "did_not_leave" in codes(script.said)


def test_an_epoch_without_metrics_of_everybody_does_not_end():
    script = Script((("red", 2),), n_samples=4, epochs=2).start()
    script.cycle(1)
    script.metrics(0, 2)
    assert not sent(script.metrics(1, 1), control.EpochAggregated)
    said = script.metrics(1, 1)
    assert len(sent(said, control.EpochAggregated)) == 2
    assert [plan.plan.epoch for _, plan in sent(said, control.StartEpoch)] == [1, 1]


def test_metrics_of_another_epoch_are_a_note():
    script = Script().start()
    assert codes(script.metrics(0, 4, epoch=3)) == ["metrics_of_another_epoch"]


def test_the_lowest_alive_rank_evaluates_and_the_next_takes_over_when_it_dies():
    script = Script((("red", 3),), has_eval=True, n_samples=6, epochs=2).start()
    script.cycle(1)
    said = [effect for rank in range(3) for effect in script.metrics(rank, 2)]
    assert sent(said, control.ExecuteEval) == [
        (0, control.ExecuteEval(schedule_id=0, epoch=0, target_rank=0))
    ]
    said = script.lose(0)
    assert sent(said, control.ExecuteEval, 1)[0].target_rank == 1
    assert codes(script.eval_result(2)) == ["eval_out_of_place"]
    said = script.eval_result(1)
    assert [rank for rank, _ in sent(said, control.StartEpoch)] == [1, 2]
    facts = script.machine.view(script.now).epochs[0]
    assert (facts.metric, facts.metric_name) == (1.5, "nats")


def test_a_failed_evaluation_is_an_alert_and_training_goes_on():
    script = Script((("red", 1),), has_eval=True, n_samples=2, epochs=2).start()
    script.cycle(1)
    script.metrics(0, 2)
    said = script.eval_result(0, metric=None, error="no such file")
    assert [alert.alert_class for alert in of(said, RaiseAlert)] == ["eval_failed"]
    assert sent(said, control.StartEpoch)


def test_splits_and_passes_number_the_events_and_the_tail_is_announced():
    script = Script((("red", 1),), n_samples=9, epoch_splits=2, epochs=2)
    script.start()
    script.said = []
    seen = []
    cycle = 0
    for event in range(4):
        plan = script.machine.view(script.now).training
        seen.append((plan.epoch, plan.epochs))
        for _ in range(2):
            cycle += 1
            script.cycle(cycle)
        said = script.metrics(0, 4, epoch=event)
        seen += [(fact.topic, fact.fields["samples"]) for fact in of(said, Announce)[1:]]
    assert [entry for entry in seen if isinstance(entry[0], int)] == [(e, 4) for e in range(4)]
    assert ("tail_dropped", 1) in seen
    passes = [facts.pass_index for facts in script.machine.view(script.now).epochs]
    assert passes == [0, 0, 1, 1]


def test_more_ranks_than_batches_idle_and_it_is_said():
    script = Script((("red", 3),), n_samples=4).rendezvous()
    for rank in range(3):
        script.ready(rank, 0, n=int(rank == 0), samples=0)
    script.rounds(0, [tally(rank, n=int(rank == 0), samples=0) for rank in range(3)])
    for rank in range(3):
        said = script.ack(rank, 0)
    assert [fact.topic for fact in of(said, Announce)] == ["ranks_idle"]
    script.checkpoint_result(0, 0)
    script.batch(0)
    assert len(sent(script.batch(1), control.RequestParams)) == 3
    for rank in range(3):
        script.ready(rank, 1, n=int(rank < 2), samples=2 * int(rank < 2))
    tallies = [tally(rank, n=int(rank < 2), samples=2 * int(rank < 2)) for rank in range(3)]
    assert ranges(script.rounds(1, tallies)) == {(0, 0, 2), (1, 2, 2)}


def test_messages_of_another_cycle_change_nothing():
    script = Script().start()
    for rank in range(3):
        script.batch(rank)
    assert codes(script.ready(0, 7)) == ["snapshot_of_another_cycle"]
    assert codes(script.ack(0, 0)) == ["ack_of_another_cycle"]
    late = RoundEnded(0, Round.PARAMS, RoundOutcome.COMMITTED, (0,), 1.0, ())
    assert codes(script.handle(late)) == ["round_out_of_place"]
    script.ready(0, 1)
    assert codes(script.ready(0, 1)) == ["snapshot_of_another_cycle"]


def test_acknowledgements_before_the_round_has_ended_finish_nothing():
    script = Script((("red", 1),), n_samples=4).start()
    script.batch(0)
    script.ready(0, 1)
    assert not sent(script.ack(0, 1), control.Update)
    assert sent(script.rounds(1, [tally(0)]), control.Update, 0)


def test_skipped_steps_drop_their_samples_at_the_commit():
    script = Script((("red", 2),), n_samples=8).start()
    for rank in (0, 1):
        script.batch(rank)
    for rank in (0, 1):
        script.ready(rank, 1, n=rank)
    said = script.rounds(1, [tally(0, n=0), tally(1, n=1)])
    assert ranges(said) == {(1, 4, 2)}
    assert ranges(said, "dropped") == {(0, 0, 2)}
    assert [fact.fields["reason"] for fact in of(said, Announce)] == [
        "no optimizer step in this window (skipped by the loss scaler, or gradients accumulated "
        "over batches)"
    ]


def test_an_unrealized_cycle_drops_what_was_skipped_and_keeps_the_version():
    script = Script((("red", 1),), n_samples=4).start()
    script.batch(0)
    script.ready(0, 1, n=0)
    assert ranges(script.rounds(1, [tally(0, n=0)]), "dropped") == {(0, 0, 2)}
    said = script.ack(0, 1, Sync.UNREALIZED)
    assert sent(said, control.Update, 0) == [control.Update(version=0, cycle=1)]
    script.cycle(2)
    assert script.machine.view(script.now).reduce.version == 2


def barren_run(*, declared):
    """A run of one cycle in which nothing was trained; returns it and its end."""
    script = Script((("red", 1),), n_samples=2).start()
    script.batch(0)
    script.ready(0, 1, n=0)
    script.rounds(1, [tally(0, n=0, declared=declared)])
    script.ack(0, 1, Sync.UNREALIZED)
    script.metrics(0, 2)
    script.checkpoint_result(0, 0)
    script.saved(0)
    return script, ends(script.exiting(0))


def test_a_run_without_any_optimizer_step_ends_as_a_failure_that_says_so():
    script, end = barren_run(declared=False)
    assert (end.exit_code, end.reason) == (1, "nothing_trained")
    assert end.detail.startswith("0 samples trained, 2 dropped")
    assert "ctx.optimizer_step()" in end.detail
    assert [alert.alert_class for alert in of(script.said, RaiseAlert)] == ["nothing_trained"]


def test_a_run_whose_values_were_never_finite_says_that_and_nothing_of_steps():
    script, end = barren_run(declared=True)
    assert (end.exit_code, end.reason) == (1, "nothing_trained")
    assert "no rank had finite values in any average" in end.detail
    assert "optimizer_step" not in end.detail
    classes = [alert.alert_class for alert in of(script.said, RaiseAlert)]
    assert classes == ["nonfinite", "nothing_trained"]


def test_a_tally_above_what_a_rank_holds_is_cut_and_noted():
    script = Script((("red", 1),), n_samples=2).start()
    script.batch(0)
    said = script.rounds(1, [RankTally(rank=0, n=9, samples=18, declared=False)])
    assert ranges(said) == {(0, 0, 2)}
    assert "tally_exceeds_holding" in codes(said)


def test_an_operators_checkpoint_is_made_at_the_next_commit_before_ranks_go_on():
    script = Script((("red", 2),), n_samples=12).start()
    script.handle(CheckpointRequested("operator"))
    said = script.cycle(1)
    order = [type(effect.message).__name__ for effect in said if getattr(effect, "rank", 1) == 0]
    assert order.index("Checkpoint") < order.index("Update")
    script.batch(0)
    assert not sent(script.batch(1), control.RequestParams)
    assert not of(script.checkpoint_result(0, 1), SaveBundle)
    said = script.checkpoint_result(1, 1)
    save = of(said, SaveBundle)[0]
    assert (save.version, save.reason) == (1, "checkpoint")
    assert [(part.offset, part.size) for part in save.facts.coverage[0].uncovered] == [
        (2, 4),
        (8, 4),
    ]
    assert len(sent(said, control.RequestParams)) == 2


def test_one_cycle_may_commit_beside_a_save_but_not_two():
    script = Script((("red", 1),), n_samples=12).start()
    script.handle(CheckpointRequested("operator"))
    script.cycle(1)
    script.checkpoint_result(0, 1)
    script.cycle(2)
    assert not sent(script.batch(0), control.RequestParams)
    assert sent(script.saved(1), control.RequestParams, 0) == [control.RequestParams(cycle=3)]


def test_saves_recur_after_their_interval():
    settings = {"checkpoint_every_s": 10.0}
    script = Script((("red", 1),), n_samples=12, settings=settings).start()
    assert not sent(script.cycle(1), control.Checkpoint)
    script.wait(11.0, beating=(0,))
    assert sent(script.cycle(2), control.Checkpoint, 0)
    script.checkpoint_result(0, 2)
    script.saved(2)
    assert not sent(script.cycle(3), control.Checkpoint)


def test_a_rank_that_cannot_write_its_part_is_an_alert_and_the_bundle_is_written():
    script = Script((("red", 1),), n_samples=12).start()
    script.handle(CheckpointRequested("operator"))
    script.cycle(1)
    said = script.checkpoint_result(0, 1, error="read-only file system")
    assert [alert.alert_class for alert in of(said, RaiseAlert)] == ["save_failed"]
    assert len(of(said, SaveBundle)) == 1


def test_a_periodic_save_whose_target_dies_is_made_at_the_next_commit():
    script = Script((("red", 2),), n_samples=12).start()
    script.handle(CheckpointRequested("operator"))
    script.cycle(1)
    said = script.lose(0)
    assert not sent(said, control.Checkpoint)
    assert sent(script.cycle(2, ranks=[1]), control.Checkpoint, 1)[0].version == 2


def test_a_message_that_names_another_rank_or_is_unknown_is_a_note():
    script = Script().start()
    assert codes(script.tell(0, script.heartbeat(1))) == ["rank_mismatch"]
    assert codes(script.tell(9, script.heartbeat(9))) == ["unknown_rank"]
    assert codes(script.tell(0, control.Throttle())) == ["not_for_coordinator"]
    assert codes(script.lose(9)) == ["unknown_rank"]


def test_a_rank_that_comes_back_is_told_to_go_once():
    script = Script().start()
    said = script.lose(2)
    assert [effect.rank for effect in of(said, DeclareRankDead)] == [2]
    assert len(sent(script.tell(2, script.heartbeat(2)), control.Shutdown, 2)) == 1
    assert not sent(script.tell(2, script.heartbeat(2)), control.Shutdown)
