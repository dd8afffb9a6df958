"""Drain: a host brings what it has done, hands back the rest and leaves, and nobody is lost."""

import pytest
from coordinator_script import (
    DeclareRankDead,
    RaiseAlert,
    SaveBundle,
    Script,
    codes,
    control,
    ends,
    of,
    sent,
    tally,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from paced_world import BATCH, PacedWorld

from flodl_core.coordinator.effects import DismissHost
from flodl_core.coordinator.events import DrainRequested, StopKind, StopRequested
from flodl_core.ids import HostName, RankPhase

TWO_HOSTS = (("red", 2), ("blue", 1))


def drain(host, who="operator"):
    return DrainRequested(HostName(host), who)


def in_sync(n_samples=24):
    """Three ranks on two hosts, one batch each in the current window."""
    script = Script(TWO_HOSTS, n_samples=n_samples).start()
    for rank in range(3):
        script.batch(rank)
    return script


def finish_cycle(script, number, ranks=(0, 1, 2)):
    for rank in ranks:
        script.ready(rank, number)
    said = script.rounds(number, [tally(rank) for rank in ranks])
    for rank in ranks:
        said += script.ack(rank, number)
    return said


# in Sync


def test_a_host_leaves_at_the_end_of_its_window_and_its_rest_goes_to_the_others():
    script = in_sync()
    said = script.handle(drain("blue"))
    assert not sent(said, control.Shutdown)
    said = finish_cycle(script, 1)
    assert sent(said, control.Shutdown, 2)
    assert not sent(said, control.Update, 2)
    gone = of(said, DeclareRankDead)
    assert [(effect.rank, effect.grace_s) for effect in gone] == [(2, 25.0)]
    assert "drained by operator" in gone[0].reason
    assert of(said, DismissHost) == [DismissHost(HostName("blue"), "drained by operator")]
    given = sent(said, control.ExtendPartition)
    assert [(rank, part.offset, part.size) for rank, part in given] == [(0, 18, 4), (1, 22, 2)]
    assert not of(said, RaiseAlert)
    assert not of(script.said, RaiseAlert)


def test_the_metrics_and_the_farewell_of_who_was_drained_still_count():
    script = in_sync(n_samples=6)
    script.handle(drain("blue"))
    finish_cycle(script, 1)
    assert not codes(script.metrics(2, 2))
    assert not codes(script.exiting(2))
    row = script.machine.view(script.now).ranks[2]
    assert (row.state, row.cause) == (RankPhase.DONE, "drained by operator")
    script.metrics(0, 2)
    said = script.metrics(1, 2)
    assert [message.samples for _, message in sent(said, control.EpochAggregated)] == [6, 6]
    assert sent(said, control.Checkpoint, 0)


def test_the_end_of_a_drained_process_is_no_loss():
    script = in_sync()
    script.handle(drain("blue"))
    finish_cycle(script, 1)
    said = script.lose(2, "signal 9")
    assert not of(said, RaiseAlert)
    assert script.machine.view(script.now).ranks[2].state is RankPhase.DONE


def test_a_drained_rank_is_waited_for_by_nobody():
    script = in_sync()
    script.handle(drain("blue"))
    finish_cycle(script, 1)
    script.batch(0)
    assert len(sent(script.batch(1), control.RequestParams)) == 2
    script.wait(60.0, beating=(0, 1))
    assert not [alert for alert in of(script.said, RaiseAlert) if alert.alert_class == "rank_lost"]


def test_a_host_may_be_drained_between_epochs():
    script = Script(TWO_HOSTS, n_samples=6, epochs=2, has_eval=True).start()
    for rank in range(3):
        script.batch(rank)
    finish_cycle(script, 1)
    for rank in range(3):
        script.metrics(rank, 2)
    script.handle(drain("blue"))
    said = script.eval_result(0)
    assert sent(said, control.Shutdown, 2)
    plans = sent(said, control.StartEpoch)
    assert [(rank, message.plan.size) for rank, message in plans] == [(0, 4), (1, 2)]


def test_an_evaluation_of_a_drained_rank_ends_before_it_leaves():
    script = Script((("red", 1), ("blue", 1)), n_samples=4, epochs=2, has_eval=True).start()
    for rank in range(2):
        script.batch(rank)
    finish_cycle(script, 1, (0, 1))
    for rank in range(2):
        said = script.metrics(rank, 2)
    assert sent(said, control.ExecuteEval, 0)
    assert not sent(script.handle(drain("red")), control.Shutdown)
    said = script.eval_result(0)
    assert sent(said, control.Shutdown, 0)
    assert [rank for rank, _ in sent(said, control.StartEpoch)] == [1]


# refusals


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("green", "no host 'green' in this run; its hosts are blue, red"),
        ("", "no host ''"),
    ],
)
def test_a_host_that_is_not_there_is_refused_by_name(host, reason):
    script = in_sync()
    assert reason in script.machine.refuse_drain(HostName(host))
    assert codes(script.handle(drain(host))) == ["drain_refused"]


def test_the_last_host_cannot_be_drained():
    script = in_sync()
    script.handle(drain("blue"))
    assert "last one with a rank" in script.machine.refuse_drain(HostName("red"))
    finish_cycle(script, 1)
    assert "has been drained" in script.machine.refuse_drain(HostName("blue"))
    assert codes(script.handle(drain("red"))) == ["drain_refused"]


def test_a_host_without_ranks_and_a_run_that_stops_are_refused():
    script = in_sync()
    script.lose(2)
    assert "no rank left" in script.machine.refuse_drain(HostName("blue"))
    script = in_sync()
    script.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    assert "stopping" in script.machine.refuse_drain(HostName("blue"))
    assert "not training" in Script(TWO_HOSTS).machine.refuse_drain(HostName("blue"))


def test_asking_twice_is_a_note():
    script = in_sync()
    script.handle(drain("blue"))
    assert codes(script.handle(drain("blue"))) == ["drain_already_requested"]


def test_a_drain_is_off_if_the_others_are_lost_before_it():
    script = in_sync()
    for rank in range(3):
        script.ready(rank, 1)
    script.handle(drain("blue"))
    script.lose(0)
    script.lose(1)
    script.rounds(1, [tally(rank) for rank in range(3)])
    said = script.ack(2, 1)
    assert not sent(said, control.Shutdown)
    assert sent(said, control.Update, 2)
    assert "is off" in next(effect.text for effect in said if hasattr(effect, "text"))


# in Cadence


@pytest.mark.slow
def test_a_drain_cuts_the_window_and_the_others_take_over():
    world = PacedWorld((10, 40, 10), 600, hosts=(("red", 2), ("blue", 1)))
    world.run(4)
    world.run(until=lambda: world.now > world.windows[-1][1] + 0.2)
    asked_at = world.now
    said = world.handle(drain("blue"))
    assert [rank for rank, _ in sent(said, control.Cut)] == [0, 1, 2]
    world.run(until=lambda: bool(of(world.said, DismissHost)))
    assert world.now - asked_at < 0.04 + world.sync_s + 0.005
    before = len(world.positions())
    world.lost_ranks.add(2)
    world.exiting(2)
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    assert world.positions() == list(range(600 * BATCH))
    assert len(world.positions()) > before
    assert not of(world.said, RaiseAlert)
    assert world.elche.batch_counts[2] == 0
    assert all(batches[2] == 0 for _, _, batches, _, _ in world.windows[6:])
    world.saved(of(world.said, SaveBundle)[-1].version)
    world.exiting(0)
    assert ends(world.exiting(1)).exit_code == 0


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(3, 60), min_size=2, max_size=4),
    st.integers(8, 120),
    st.floats(0.0, 1.0),
)
def test_a_drain_at_any_moment_trains_every_sample_once(batch_ms, batches, after_s):
    hosts = (("red", len(batch_ms) - 1), ("blue", 1))
    world = PacedWorld(batch_ms, batches, hosts=hosts)
    world.run(until=lambda: world.now >= 100.0 + after_s or world.machine._state.ending)
    leaver = len(batch_ms) - 1
    if not world.machine.refuse_drain(HostName("blue")):
        world.handle(drain("blue"))
        world.run(until=lambda: bool(of(world.said, DismissHost)))
        world.lost_ranks.add(leaver)
        world.exiting(leaver)
    world.run(until=lambda: world.machine._state.ending)
    assert world.positions() == list(range(batches * BATCH))
    assert not of(world.said, RaiseAlert)
