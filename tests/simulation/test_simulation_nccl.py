"""Runs on NCCL in the simulator, and what its oracle says when a rule is broken."""

import numpy as np
import pytest

from flodl_core.ids import Cycle, ExitCode, Mode, Rank
from flodl_core.messages.data import RankTally
from flodl_core.simulation.draws import draw_scenario
from flodl_core.simulation.nccl_group import Average, Brought, Entry, Group, PhantomError
from flodl_core.simulation.nccl_home import Claim
from flodl_core.simulation.nccl_oracle import Held, NcclOracle
from flodl_core.simulation.nccl_world import NcclWorld, values_of
from flodl_core.simulation.rules import Rules, SimulationFailure
from flodl_core.simulation.scenario import ON_NCCL, Scenario
from flodl_core.simulation.simulate import simulate

ENDS = {"finished", "stopped", "single_survivor", "max_failure_exceeded", "non_finite"}


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
    group = Group(0, (Rank(0), Rank(1)), None)
    tally = RankTally(rank=Rank(0), n=1, samples=1, declared=False)
    group.enter(Rank(0), Entry("COUNT", Cycle(1), tally))
    with pytest.raises(PhantomError, match="PARAM of cycle 1, beside COUNT"):
        group.enter(Rank(1), Entry("PARAM", Cycle(1), tally))


def oracle_at_cycle_one() -> tuple[NcclOracle, Average]:
    """Two ranks that have brought 0 and 2, whose mean is 1."""
    oracle = NcclOracle(Rules(Scenario(seed=1, mode=Mode.NCCL_SYNC), lambda: 0.0))
    tallies = []
    for rank in (Rank(0), Rank(1)):
        tally = RankTally(rank=rank, n=1, samples=2, declared=False)
        values = np.full(3, 2.0 * rank, np.float32)
        oracle.began(rank, np.zeros(3, np.float32))
        oracle.offered(Claim(Cycle(1), tally), Brought(values, values), [(0, 2 * rank, 2)])
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
