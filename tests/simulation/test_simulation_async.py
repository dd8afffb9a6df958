"""Async in the simulator: ranks that run on, deaths in mid-reduce, saves at rest, blends."""

from dataclasses import replace

import pytest
from seeded_runs import BATCHES, CALM, check_whole

from flodl_core.coordinator.events import StopKind
from flodl_core.dispatch.actions import CycleStage
from flodl_core.ids import ExitCode, Mode
from flodl_core.simulation import run_scenario
from flodl_core.simulation.draws import draw_scenario
from flodl_core.simulation.scenario import Action, Fault, Order, Scenario, Site, SpeedChange
from flodl_core.simulation.world import World

pytestmark = pytest.mark.slow


def running(**changes):
    return Scenario(seed=11, **(CALM | {"mode": Mode.CPU_ASYNC, "easgd_alpha": 0.5} | changes))


def test_a_seed_is_the_same_world_as_in_cadence():
    for seed in range(30):
        cadence, runs_on = (
            draw_scenario(seed, mode) for mode in (Mode.CPU_CADENCE, Mode.CPU_ASYNC)
        )
        unlike = {"mode", "overshoot", "easgd_alpha"}
        kept = {name: getattr(cadence, name) for name in unlike}
        assert replace(runs_on, **kept) == cadence


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("overshoot", [None, 0, 1, 40])
def test_a_calm_run_trains_every_sample_once(alpha, overshoot):
    check_whole(run_scenario(running(easgd_alpha=alpha, overshoot=overshoot)))


def test_ranks_train_while_they_are_averaged():
    world, beside = World(running(epochs=2)), []

    def look():
        beside.extend(
            rank.rank
            for rank in world.ranks.values()
            if rank.pacer.stage is CycleStage.IN_ROUNDS and rank.drawn_since_snapshot
        )
        world.loop.after(0.002, look)

    world.loop.after(0.0, look)
    assert world.run().exit_code == ExitCode.DONE
    assert len(beside) > 20


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize(
    "site",
    [
        Site.IN_BATCH,
        Site.AFTER_REPORT,
        Site.BEFORE_READY,
        Site.BETWEEN_MARKS,
        Site.AFTER_MARKS,
        Site.CONTROL_ENDED,
        Site.PARAMS_ENDED,
        Site.BEFORE_ACK,
        Site.AFTER_ACK,
    ],
)
def test_a_death_at_any_place_costs_no_sample(site, rank):
    check_whole(run_scenario(running(faults=(Fault(Action.CRASH, rank, site, 3),))), lost=1)


@pytest.mark.parametrize("action", [Action.KILL_HOST, Action.CUT_LINK, Action.PARTITION])
@pytest.mark.parametrize("bucket", [2, 7])
def test_a_host_lost_at_any_bucket_leaves_the_others_to_finish(action, bucket):
    check_whole(run_scenario(running(faults=(Fault(action, 2, Site.SHIP_BUCKET, bucket),))), lost=2)


@pytest.mark.parametrize("at_s", [1.5, 2.3])
def test_a_checkpoint_and_a_stop_find_everybody_at_rest(at_s):
    save = Order(at_s, None)
    stop = Order(at_s + 1.0, StopKind.SAVE, ExitCode.INTERRUPTED_SAVED)
    outcome = run_scenario(running(orders=(save, stop), anchor=30, epochs=20))
    assert (outcome.exit_code, outcome.saves) == (ExitCode.INTERRUPTED_SAVED, 2)


@pytest.mark.parametrize("host", [0, 1])
@pytest.mark.parametrize("at_s", [1.2, 2.6])
def test_a_host_may_be_drained_at_any_moment(host, at_s):
    check_whole(run_scenario(running(orders=(Order(at_s, None, drain=host),))))


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_a_rank_that_changes_its_speed_loses_no_sample(factor):
    check_whole(run_scenario(running(speed_changes=(SpeedChange(0, 2.0, factor),))))


def test_a_rank_without_finite_values_trains_no_further_and_adopts():
    fault = Fault(Action.POISON, 1, Site.BEFORE_READY, 2, snapshots=1)
    outcome = run_scenario(running(faults=(fault,)))
    assert (outcome.exit_code, outcome.lost) == (ExitCode.DONE, 0)
    assert outcome.dropped > 0
    assert outcome.trained + outcome.dropped == 2 * BATCHES
