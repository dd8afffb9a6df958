"""Ranks that run on: what they are dealt, how far they may go, and how they come to rest."""

import pytest
from coordinator_script import SaveBundle, control, ends, of, sent
from hypothesis import given, settings
from hypothesis import strategies as st
from paced_world import BATCH, PacedWorld

from flodl_core.coordinator.events import (
    CheckpointRequested,
    DrainRequested,
    StopKind,
    StopRequested,
)
from flodl_core.elche.guards import NudgeDown, Stable
from flodl_core.ids import HostName, Mode

pytestmark = pytest.mark.slow


def world_of(batch_ms, batches, **numbers):
    return PacedWorld(batch_ms, batches, **({"mode": Mode.CPU_ASYNC} | numbers))


def to_the_end(world):
    """Run until the last save is ordered, make it, and let everybody go."""
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    while not world.machine.ended:
        bundle = of(world.said, SaveBundle)[-1]
        world.forget()
        world.saved(bundle.version)
        if bundle.reason.value == "checkpoint":
            world.run(until=lambda: bool(of(world.said, SaveBundle)))
            continue
        alive = [r for r in range(world.world) if r not in world.lost_ranks]
        for rank in alive:
            world.exiting(rank)
        break
    return world


def test_an_average_costs_ranks_that_run_on_nothing():
    """A tenth of a second each time, in which all train."""
    world = world_of((10, 40), 40_000, sync_s=0.1).run(16)
    assert world.share_of_ideal(world.windows[-8:]) > 0.985
    held = PacedWorld((10, 40), 40_000, sync_s=0.1).run(16)
    assert held.share_of_ideal(held.windows[-8:]) < 0.96


def test_counts_follow_the_speeds_and_each_rank_may_overshoot_its_own():
    world = world_of((10, 40), 40_000).run(12)
    assert world.elche.batch_counts == (40, 10)
    assert world.elche.overshoot == 15
    assert world.planned == (40, 10)


def test_a_given_overshoot_is_kept():
    world = world_of((10, 40), 40_000, cadence={"overshoot": 2}).run(12)
    assert world.elche.overshoot == 2
    assert PacedWorld((10, 40), 4_000).elche.overshoot is None


class Nervous:
    """A guard that nudges down when it is told to."""

    name = "nervous"
    history = ()
    verdict = Stable()

    def review(self, _report):
        return self.verdict

    def restore(self, _history):
        pass


def test_a_nudge_takes_the_overshoot_back():
    guard = Nervous()
    world = world_of((10, 10), 60_000, cadence={"custom_guard": guard, "meta": False}).run(8)
    assert world.elche.overshoot > 5
    guard.verdict = NudgeDown(0.5, "it runs away")
    world.run(1)
    assert world.elche.overshoot == 3


def test_work_for_the_average_goes_out_with_its_request():
    world = world_of((10, 40), 40_000).run(6)
    world.forget()
    world.run(1)
    told = (control.RequestParams, control.ExtendPartition, control.Update)
    kinds = [type(message) for message in sent(world.said, object, 0) if isinstance(message, told)]
    asked = kinds.index(control.RequestParams)
    assert kinds[asked + 1] is control.ExtendPartition
    assert not [update for _, update in sent(world.said, control.Update) if update.next_plan]


def test_ranks_are_told_how_fast_the_step_advances():
    world = world_of((10, 40), 40_000).run(12)
    world.forget()
    world.run(1)
    told = [
        (rank, one.own_batches, one.cohort_batches)
        for rank, one in sent(world.said, control.SetGlobalStep)
    ]
    assert told == [(0, 40, 50), (1, 10, 50)]


def test_every_sample_of_an_epoch_is_trained_once_and_nobody_runs_into_the_next():
    world = to_the_end(world_of((5, 5, 60), 700, epochs=2))
    assert world.positions() == sorted([*range(700 * BATCH)] * 2)
    assert {entry.epoch for entry in world.trained} == {0, 1}


def test_a_checkpoint_and_a_stop_bring_everybody_to_rest_first():
    world = world_of((10, 40), 4_000).run(6)
    world.handle(CheckpointRequested("operator"))
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    saved = of(world.said, SaveBundle)[-1]
    assert saved.facts.samples_trained == len(world.positions())
    assert world.windows[-1][3], "the window of a save is cut"
    world.saved(saved.version)
    world.run(3)
    assert not world.windows[-1][3]
    world.forget()
    world.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    last = of(world.said, SaveBundle)[-1]
    (coverage,) = last.facts.coverage
    uncovered = {p for part in coverage.uncovered for p in range(part.offset, part.end)}
    assert uncovered == set(range(4_000 * BATCH)) - set(world.positions())
    world.saved(last.version)
    world.exiting(0)
    assert ends(world.exiting(1)).exit_code == 4


def test_a_stop_that_comes_during_an_average_waits_for_a_cut_after_it():
    world = world_of((10, 40), 4_000, sync_s=0.2).run(6)
    world.run(until=lambda: world.machine._state.cycle.pending)
    world.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    averages = len(world.windows)
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    assert len(world.windows) == averages + 2
    assert [window[3] for window in world.windows[-2:]] == [False, True]
    assert of(world.said, SaveBundle)[-1].facts.samples_trained == len(world.positions())


def test_periodic_saves_are_made_at_rest():
    world = world_of((10, 40), 4_000, settings={"checkpoint_every_s": 3.0})
    began = world.now
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    bundle = of(world.said, SaveBundle)[-1]
    assert bundle.facts.samples_trained == len(world.positions())
    assert world.now - began == pytest.approx(3.0, abs=0.7)


def test_a_rank_that_is_late_has_the_average_begin_and_keeps_its_work():
    world = world_of((10, 10), 40_000).run(8)
    world.batch_ms[1] = 200
    world.forget()
    world.run(2)
    assert "window_cut" in world.topics()
    assert not sent(world.said, control.Cut)
    world.run(10)
    assert world.share_of_ideal(world.windows[-4:]) > 0.97


def test_max_batch_diff_keeps_a_rank_that_did_its_count_from_running_further():
    patient = {"late_factor": 100.0}
    world = world_of((10, 10), 40_000, elche={"max_batch_diff": 2}, cadence=patient).run(8)
    world.batch_ms[1] = 100
    world.forget()
    world.run(1)
    _, _, batches, _, planned = world.windows[-1]
    assert [rank for rank, _ in sent(world.said, control.Throttle)] == [0]
    assert batches[0] <= planned[0] + 1
    assert world.elche.overshoot > 1


def test_a_host_that_drains_hands_back_what_it_has_not_begun():
    hosts = (("red", 1), ("blue", 1))
    world = world_of((10, 10), 400, hosts=hosts).run(4)
    world.handle(DrainRequested(HostName("blue"), "operator"))
    world.run(until=lambda: bool(sent(world.said, control.Shutdown, 1)))
    assert world.windows[-1][3]
    world.exiting(1)
    world.lost_ranks.add(1)
    to_the_end(world)
    assert world.positions() == list(range(400 * BATCH))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from((2, 5, 10, 30, 90)), min_size=1, max_size=4),
    st.integers(1, 260),
    st.sampled_from((0.0, 0.01, 0.3)),
    st.integers(1, 3),
    st.none() | st.tuples(st.integers(0, 3), st.floats(0.0, 2.0)),
)
def test_whatever_the_speeds_and_whoever_dies_every_sample_is_trained_once(
    batch_ms, batches, sync_s, epochs, death
):
    world = world_of(batch_ms, batches, sync_s=sync_s, epochs=epochs)
    if death is not None and len(batch_ms) > 1:
        rank, at_s = death[0] % len(batch_ms), death[1]
        world.run(until=lambda: world.now >= at_s or bool(of(world.said, SaveBundle)))
        if not of(world.said, SaveBundle):
            world.kill(rank)
    to_the_end(world)
    assert world.positions() == sorted([*range(batches * BATCH)] * epochs)
