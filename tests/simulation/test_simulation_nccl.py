"""Runs on NCCL in the simulator, and what its oracle says when a rule is broken."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.ids import Cycle, ExitCode, Mode, Rank, SaveReason
from flodl_core.messages.data import RankTally
from flodl_core.simulation.draws import draw_scenario
from flodl_core.simulation.nccl_group import Average, Brought, EnteredCall, PhantomError, SimGroup
from flodl_core.simulation.nccl_home import SimClaim
from flodl_core.simulation.nccl_oracle import Held, NcclOracle
from flodl_core.simulation.nccl_world import SITES, NcclFaults, NcclWorld, values_of
from flodl_core.simulation.outcome import Outcome
from flodl_core.simulation.rules import Rules, SimulationFailure
from flodl_core.simulation.scenario import ON_NCCL, Scenario
from flodl_core.simulation.simulate import simulate

ENDS = {
    *("finished", "stopped", "single_survivor"),
    *("max_failure_exceeded", "non_finite", "all_ranks_lost"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ON_NCCL)
def test_a_dozen_seeds_end_as_they_should(mode: Mode) -> None:
    for seed in range(300, 312):
        assert simulate(seed, mode).reason in ENDS


@pytest.mark.slow
@pytest.mark.simulation
@pytest.mark.parametrize("mode", ON_NCCL)
def test_a_hundred_and_fifty_seeds_end_as_they_should(mode: Mode) -> None:
    ends = [simulate(seed, mode) for seed in range(150)]
    assert {one.reason for one in ends} <= ENDS
    assert sum(one.exit_code == ExitCode.DONE for one in ends) > 75
    assert any(one.lost for one in ends)
    assert any(one.dropped for one in ends)


def steady(mode: Mode, seed: int, **changes: object) -> Scenario:
    """Two passes of five ranks on two hosts, saved at the end."""
    numbers = {"hosts": (3, 2), "n_samples": 60, "epochs": 2, "batch_s": (), **changes}
    return Scenario(seed=seed, mode=mode, **numbers)


def check_whole(world: NcclWorld, outcome: Outcome) -> None:
    """Every sample of every pass was trained once; everybody who is left holds one value."""
    assert (outcome.exit_code, outcome.reason) == (ExitCode.DONE, "finished")
    assert outcome.trained == world.scenario.epochs * world.scenario.n_samples
    first, *others = values_of(world)
    assert all(np.array_equal(first, other) for other in others)
    assert outcome.saves > 0


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6), mode=st.sampled_from(ON_NCCL))
def test_a_calm_run_trains_every_sample_once_in_one_session(seed: int, mode: Mode) -> None:
    world = NcclWorld(steady(mode, seed), NcclFaults())
    check_whole(world, world.run())
    assert world.sessions == 1


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from(ON_NCCL),
    kill_at=st.lists(st.integers(20, 400), min_size=1, max_size=3).map(sorted),
    site=st.sampled_from(SITES),
)
def test_survivors_go_on_from_one_value_and_no_sample_is_lost(
    seed: int, mode: Mode, kill_at: list[int], site: str
) -> None:
    world = NcclWorld(steady(mode, seed), NcclFaults(kill_at=kill_at, site=site))
    check_whole(world, world.run())


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), mode=st.sampled_from(ON_NCCL), ranks=st.integers(2, 4))
def test_the_last_one_averages_with_itself_is_saved_and_stops(
    seed: int, mode: Mode, ranks: int
) -> None:
    kills = NcclFaults(kill_at=[100 * one for one in range(1, ranks)])
    world = NcclWorld(steady(mode, seed, hosts=(ranks,), epochs=50), kills)
    outcome = world.run()
    assert outcome.exit_code == ExitCode.STOPPED_SAVED, outcome
    assert outcome.reason == SaveReason.SINGLE_SURVIVOR.value
    assert outcome.saves > 0


def test_too_many_deaths_end_the_run_with_what_was_averaged_last() -> None:
    scenario = steady(Mode.NCCL_CADENCE, 3, epochs=50, max_failure=2)
    outcome = NcclWorld(scenario, NcclFaults(kill_at=[100, 200])).run()
    assert outcome.exit_code == ExitCode.FAILED
    assert outcome.reason == SaveReason.MAX_FAILURE_EXCEEDED.value
    assert outcome.saves > 0


def test_a_seed_is_one_run() -> None:
    assert simulate(5, Mode.NCCL_CADENCE) == simulate(5, Mode.NCCL_CADENCE)


def test_survivors_of_deaths_under_an_outer_optimizer_hold_the_same_bits() -> None:
    """Among these seeds some rank is given a stepped cycle that it had not completed."""
    recovered = 0
    for seed in range(60):
        scenario = draw_scenario(seed, Mode.NCCL_CADENCE)
        if scenario.outer is None or scenario.world_size < 3:
            continue
        world = NcclWorld(scenario)
        outcome = world.run()
        if outcome.reason != "finished":
            continue
        recovered += world.recovered
        first, *others = values_of(world)
        assert all(np.array_equal(first, other) for other in others)
    assert recovered > 0


def test_a_member_that_enters_another_collective_is_a_phantom() -> None:
    group = SimGroup(0, (Rank(0), Rank(1)), None)
    tally = RankTally(rank=Rank(0), n=1, samples=1, declared=False)
    group.enter(Rank(0), EnteredCall("COUNT", Cycle(1), tally))
    with pytest.raises(PhantomError, match="PARAM of cycle 1, beside COUNT"):
        group.enter(Rank(1), EnteredCall("PARAM", Cycle(1), tally))


def oracle_at_cycle_one() -> tuple[NcclOracle, Average]:
    """Two ranks that have brought 0 and 2, whose mean is 1."""
    oracle = NcclOracle(Rules(Scenario(seed=1, mode=Mode.NCCL_SYNC), lambda: 0.0))
    tallies = []
    for rank in (Rank(0), Rank(1)):
        tally = RankTally(rank=rank, n=1, samples=2, declared=False)
        values = np.full(3, 2.0 * rank, np.float32)
        oracle.began(rank, np.zeros(3, np.float32))
        oracle.offered(SimClaim(Cycle(1), tally), Brought(values, values), [(0, 2 * rank, 2)])
        tallies.append(tally)
    mean = np.ones(3, np.float32)
    return oracle, Average(Cycle(1), mean, mean, tuple(tallies))


@pytest.mark.parametrize(
    ("found", "rule"), [(1.0, ""), (1.01, "stepped"), (float("nan"), "stepped")]
)
def test_a_rank_that_adopts_anything_else_is_named(found: float, rule: str) -> None:
    oracle, average = oracle_at_cycle_one()
    params = np.full(3, found, np.float32)
    held = Held(1, params, np.zeros(3, np.float32), is_average=True)
    if not rule:
        oracle.adopted(Rank(0), average, held, alive={Rank(0), Rank(1)})
        return
    with pytest.raises(SimulationFailure, match=rule):
        oracle.adopted(Rank(0), average, held, alive={Rank(0), Rank(1)})


def test_two_values_of_one_cycle_may_not_be_held_at_once() -> None:
    oracle, average = oracle_at_cycle_one()
    for rank, off in ((Rank(0), 0.0), (Rank(1), 2.0**-23)):
        params = np.full(3, 1.0 + off, np.float32)
        held = Held(1, params, np.zeros(3, np.float32), is_average=True)
        if rank:
            with pytest.raises(SimulationFailure, match="one value"):
                oracle.adopted(rank, average, held, alive={Rank(0), Rank(1)})
        else:
            oracle.adopted(rank, average, held, alive={Rank(0), Rank(1)})
