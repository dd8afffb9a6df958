"""Evaluations: who is asked and when, what they cost, and what becomes of one that fails."""

import pytest
from coordinator_script import Script, codes, of, sent
from hypothesis import given
from hypothesis import strategies as st
from paced_world import BATCH, PacedWorld

from flodl_core.coordinator.callback_desk import CallbackDesk, CallbackSettings
from flodl_core.coordinator.effects import Announce, RaiseAlert
from flodl_core.coordinator.events import StopKind, StopRequested
from flodl_core.dispatch.ranges import Range
from flodl_core.ids import CallbackPolicy, Mode, Rank
from flodl_core.messages import control


def world(batch_ms=(10, 20, 60), batches=300, *, epochs=3, eval_s=0.5, **callbacks):
    settings = {"callbacks": CallbackSettings(**callbacks)}
    made = PacedWorld(batch_ms, batches, epochs=epochs, has_eval=True, settings=settings)
    made.eval_s = eval_s
    return made


def epochs_of(made):
    return made.machine.view(made.now).epochs


def until_event(made, event):
    """Let time pass until an evaluation of that event has begun."""
    return made.run(until=lambda: any(one[1] == event for one in made.evaluated))


# how often


@pytest.mark.parametrize(
    ("every", "events"),
    [(1, [0, 1, 2, 3, 4]), (2, [1, 3, 4]), (3, [2, 4]), (5, [4]), (9, [4]), (0, [4])],
)
def test_every_so_many_events_are_evaluated_and_the_last_one_always(every, events):
    settings = CallbackSettings(eval_every=every)
    assert [event for event in range(5) if settings.is_due(event, 5)] == events


@pytest.mark.parametrize("mode", [Mode.CPU_SYNC, Mode.CPU_CADENCE])
def test_a_run_evaluates_as_often_as_it_is_told(mode):
    settings = {"callbacks": CallbackSettings(eval_every=2)}
    script = Script(
        (("red", 1),), has_eval=True, n_samples=2, epochs=5, mode=mode, settings=settings
    ).start()
    asked = []
    for epoch in range(5):
        script.batch(0)
        script.cycle(epoch + 1)
        said = script.metrics(0, 2, epoch)
        asked += [message.epoch for _, message in sent(said, control.ExecuteEval)]
        script.eval_result(0, epoch)
    assert asked == [1, 3, 4]


# who


def test_the_fastest_measured_rank_is_chosen():
    desk = CallbackDesk()
    assert desk.elect([0, 1, 2], {}) == 0
    assert desk.elect([0, 1, 2], {0: 60.0, 1: 5.0, 2: 5.0}) == 1
    assert desk.elect([0, 2], {0: 60.0, 2: 5.0}) == 2
    assert desk.elect([0, 1, 2], {2: 50.0}) == 2


def test_a_sticky_choice_stays_until_its_rank_is_gone():
    desk = CallbackDesk(CallbackSettings(policy=CallbackPolicy.STICKY))
    assert desk.elect([0, 1, 2], {0: 60.0, 1: 5.0, 2: 50.0}) == 1
    assert desk.elect([0, 1, 2], {0: 1.0, 1: 500.0, 2: 50.0}) == 1
    assert desk.elect([0, 2], {0: 70.0, 2: 50.0}) == 2
    assert desk.elect([0, 1, 2], {0: 1.0, 1: 1.0, 2: 50.0}) == 2


def test_a_fixed_rank_has_the_lowest_one_as_its_stand_in():
    settings = CallbackSettings(policy=CallbackPolicy.FIXED, fixed_rank=Rank(2))
    desk = CallbackDesk(settings)
    assert desk.elect([0, 1, 2], {0: 1.0}) == 2
    assert desk.elect([0, 1], {1: 1.0}) == 0


def test_who_failed_is_passed_over_as_long_as_another_is_left():
    desk = CallbackDesk()
    desk.fail(Rank(1))
    assert desk.elect([0, 1, 2], {0: 60.0, 1: 5.0, 2: 50.0}) == 2
    assert desk.is_left([0, 1])
    assert not desk.is_left([1])
    assert desk.elect([1], {}) == 1


@given(
    st.sampled_from(CallbackPolicy),
    st.none() | st.integers(0, 4),
    st.lists(
        st.tuples(
            st.sets(st.integers(0, 4), min_size=1),
            st.dictionaries(st.integers(0, 4), st.floats(0.1, 100)),
            st.none() | st.integers(0, 4),
        ),
        max_size=10,
    ),
)
def test_whoever_is_chosen_is_alive(policy, fixed, turns):
    desk = CallbackDesk(CallbackSettings(policy=policy, fixed_rank=fixed))
    for alive, speeds, fails in turns:
        assert desk.elect(sorted(alive), speeds) in alive
        if fails is not None:
            desk.fail(fails)


# beside training


def test_the_others_train_on_while_the_fastest_evaluates():
    made = until_event(world(), 0)
    assert made.evaluated == [(0, 0)]
    view = made.machine.view(made.now)
    assert view.stage == "training"
    assert [rank.state for rank in view.ranks] == ["callback", "training", "training"]
    made.run(1)
    assert epochs_of(made)[0].metric == 1.5
    assert made.windows[-1][2][1] > 0


def test_a_known_cost_is_dealt_around():
    made = world((10, 20, 60), 300, epochs=4)
    until_event(made, 0).run(1)  # nothing is known of the first
    assert made.machine._state.callbacks.costs.cost_ms(Rank(0)) == 500.0
    until_event(made, 1)
    counts = made.elche.batch_counts
    # 500 ms are 50 of its batches
    assert made.planned[0] == counts[0] - 50
    assert made.planned[1:] == counts[1:]
    made.run(1)
    began, ended, batches, was_cut, _ = made.windows[-1]
    assert not was_cut
    assert batches == (counts[0] - 50, *counts[1:])
    assert ended - began == pytest.approx(0.6 + 0.015, rel=0.05)


def test_a_small_cost_is_borne():
    made = world(eval_s=0.09, epochs=4)
    until_event(made, 1)
    assert made.planned == made.elche.batch_counts


def test_a_callback_is_in_no_timing_and_in_no_growth():
    made = world(epochs=5, batches=1200)
    until_event(made, 0).run(1)
    before = made.elche
    assert made.machine._state.cadence.balancer.ms_per_batch[0] == pytest.approx(10, rel=0.02)
    until_event(made, 2).run(1)
    assert made.machine._state.cadence.balancer.ms_per_batch[0] == pytest.approx(10, rel=0.02)
    assert made.elche.anchor == before.anchor


def test_after_the_last_event_everybody_waits():
    made = until_event(world(epochs=1), 0)
    assert made.machine.view(made.now).stage == "evaluating"
    made.run()
    assert made.machine.ended
    assert epochs_of(made)[0].metric == 1.5


def test_a_stop_while_one_evaluates_ends_the_window_with_it():
    made = until_event(world(), 0)
    made.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    made.run(1)
    assert made.windows[-1][3]
    assert made.windows[-1][2][0] == 0
    assert epochs_of(made)[0].metric == 1.5


def test_a_longer_callback_than_the_window_cuts_it_when_the_others_are_done():
    made = until_event(world(eval_s=5.0), 0)
    made.run(1)
    began, ended, batches, was_cut, planned = made.windows[-1]
    assert was_cut
    assert (batches[0], batches[1:]) == (0, planned[1:])
    assert ended - began == pytest.approx(5.0, rel=0.02)
    made.run()
    assert made.positions() == sorted(list(range(300 * BATCH)) * 3)


# failing over


def test_an_evaluation_of_a_lost_rank_is_made_up_for_at_the_next_average():
    made = until_event(world(), 0)
    made.kill(0)
    assert made.evaluated == [(0, 0)]
    made.run(1)
    # its window is over; ranks hold a consensus again, and the fastest left is asked
    made.run(until=lambda: len(made.evaluated) > 1)
    assert made.evaluated == [(0, 0), (1, 0)]
    made.run(1)
    assert epochs_of(made)[0].metric == 1.5


def test_an_evaluation_that_raises_is_asked_of_others_and_said():
    made = world(epochs=1)
    made.eval_errors = {0: "OutOfMemoryError: no"}
    made.run()
    assert made.evaluated == [(0, 0), (1, 0)]
    (alert,) = [a for a in of(made.said, RaiseAlert) if a.alert_class == "eval_failed"]
    assert "could not evaluate epoch 1: OutOfMemoryError" in alert.detail
    assert epochs_of(made)[0].metric == 1.5


def test_an_evaluation_that_raises_everywhere_is_given_up_after_three_ranks():
    made = world((10, 20, 30, 40), epochs=1)
    made.eval_errors = dict.fromkeys(range(4), "ValueError: no")
    made.run()
    assert made.evaluated == [(0, 0), (1, 0), (2, 0)]
    assert made.machine.ended
    assert epochs_of(made)[0].metric is None


def test_who_raised_once_is_not_asked_again_while_another_is_there():
    made = world(epochs=4)
    made.eval_errors = {0: "ValueError: no"}
    made.run()
    assert [rank for rank, _ in made.evaluated] == [0, 1, 1, 1, 1]
    assert [one.metric for one in epochs_of(made)] == [1.5] * 4


def test_an_owed_evaluation_gives_way_to_the_next_one():
    made = until_event(world(batches=90), 0)
    made.kill(0)
    made.run()
    assert [event for _, event in made.evaluated][-1] == 2
    assert made.machine.ended


def test_in_sync_the_next_rank_is_asked_at_once():
    script = Script((("red", 2),), has_eval=True, n_samples=4).start()
    for rank in range(2):
        script.batch(rank)
    script.cycle(1)
    for rank in range(2):
        script.metrics(rank, 2)
    said = script.eval_result(0, error="ValueError: no")
    assert [message.target_rank for _, message in sent(said, control.ExecuteEval)] == [1]
    said = script.eval_result(1)
    assert [effect.topic for effect in of(said, Announce)][:1] == ["evaluated"]


def test_an_answer_that_nobody_asked_for_changes_nothing():
    script = Script((("red", 1),), has_eval=True, n_samples=2).start()
    assert codes(script.eval_result(0)) == ["eval_out_of_place"]


# parts of an epoch in Sync


def test_in_sync_parts_may_be_unequal():
    settings = {"partition_ratios": (3.0, 1.0)}
    script = Script((("red", 2),), n_samples=16, settings=settings).start()
    book = script.machine._state.book
    assert [book.holdings(Rank(rank)) for rank in range(2)] == [[Range(0, 12)], [Range(12, 4)]]
