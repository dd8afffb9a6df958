"""Runs that end anyhow and go on in another world: each sample of a pass is trained once."""

from dataclasses import replace
from functools import partial

import pytest
from seeded_runs import check_seeds

from flodl_core.coordinator.events import StopKind
from flodl_core.dispatch.ranges import Range
from flodl_core.ids import Mode
from flodl_core.simulation import SimulationFailure, run_scenario, simulate_resumed
from flodl_core.simulation.scenario import SIMULATED, Order, Scenario
from flodl_core.simulation.world import World

SEEDS = 160
SHARDS = 8
IN_EACH = pytest.mark.parametrize("mode", SIMULATED)


@pytest.mark.simulation
@pytest.mark.slow
@IN_EACH
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_rule_holds_in_a_run_and_in_the_one_that_goes_on_from_it(shard, mode):
    check_seeds(partial(simulate_resumed, mode=mode), range(shard, SEEDS, SHARDS))


def stopped(mode, hosts=(2, 1)):
    """A run of two passes that is stopped in the middle of the first, and its bundle."""
    scenario = Scenario(
        seed=5,
        mode=mode,
        hosts=hosts,
        n_samples=120,
        epochs=2,
        batch_s=(0.15,) * sum(hosts),
        orders=(Order(at_s=3.0, kind=StopKind.SAVE),),
    )
    world = World(scenario)
    world.run()
    saved = world.oracles.newest_bundle
    assert saved is not None
    assert saved.facts.epoch == 0
    open_samples = sum(part.size for part in saved.facts.coverage[0].uncovered)
    assert 0 < open_samples < 120
    assert 120 - open_samples == world.oracles.trained
    return replace(scenario, orders=(), saved=saved), world.oracles.trained


@IN_EACH
@pytest.mark.parametrize("hosts", [(2, 1), (1, 1), (3, 2)])
def test_what_is_left_is_trained_by_any_number_of_ranks(mode, hosts):
    scenario, trained = stopped(mode)
    batch_s = (0.05,) * sum(hosts)
    outcome = run_scenario(replace(scenario, hosts=hosts, batch_s=batch_s))
    assert (outcome.exit_code, outcome.reason) == (0, "finished")
    assert outcome.trained == 2 * 120 - trained


@pytest.mark.parametrize("first", SIMULATED)
@pytest.mark.parametrize("then", SIMULATED)
def test_the_mode_may_change(first, then):
    scenario, trained = stopped(first)
    assert run_scenario(replace(scenario, mode=then)).trained == 2 * 120 - trained


@IN_EACH
def test_versions_steps_and_totals_go_on(mode):
    scenario, _ = stopped(mode)
    facts = scenario.saved.facts
    world = World(scenario)
    outcome = world.run()
    done = world.oracles.newest_bundle.facts
    assert done.sync_round == facts.sync_round + outcome.syncs - facts.syncs
    assert done.global_step == 120  # two passes of 60 batches
    assert (done.samples_trained, done.samples_dropped) == (240, 0)
    assert [epoch.samples for epoch in done.finished] == [120, 120]


def test_a_resume_that_forgets_a_hole_is_found_out():
    scenario, _ = stopped(Mode.CPU_SYNC)
    facts = scenario.saved.facts
    first, *others = facts.coverage[0].uncovered
    shorter = (Range(first.offset + 2, first.size - 2), *others)
    coverage = replace(facts.coverage[0], uncovered=shorter)
    forgot = replace(scenario.saved, facts=replace(facts, coverage=(coverage,), arrangement=None))
    with pytest.raises(SimulationFailure, match="without positions"):
        run_scenario(replace(scenario, saved=forgot))


def test_a_resume_that_repeats_samples_is_found_out():
    scenario, _ = stopped(Mode.CPU_SYNC)
    facts = scenario.saved.facts
    coverage = replace(facts.coverage[0], uncovered=(Range(0, 120),))
    forgot = replace(scenario.saved, facts=replace(facts, coverage=(coverage,), arrangement=None))
    with pytest.raises(SimulationFailure, match="twice"):
        run_scenario(replace(scenario, saved=forgot))
