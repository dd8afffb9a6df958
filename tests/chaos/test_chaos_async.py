"""SIGKILL where ranks run on: while they train, copy, are averaged, adopt; nothing is lost."""

import signal

import pytest
from chaos_cases import Case, cases
from chaos_world import EVERY_RANK

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(150)]

KILL = signal.SIGKILL
ASYNC = ("--mode", "cpu_async", "--easgd-alpha", "1", "--anchor", "2", "--max-anchor", "2")
"""At the end of an epoch nobody has work in flight, so that with α = 1 all hold the average."""
PLACES = ("compute", "snapshot", "mid_bucket", "adopt")


@pytest.mark.parametrize("case", cases(KILL, "near", "far", phases=PLACES), ids=str)
def test_a_rank_that_runs_on_and_is_killed_costs_no_sample(start, case: Case) -> None:
    world = start(*ASYNC, park=case.park, options=case.options)
    world.until_parked(*case.parked)
    world.strike(world.victim(case.victim), KILL)
    (rank,) = case.lost
    assert case.names in world.lost(rank)
    world.go()
    assert world.finish() == 0
    world.check_whole()
    world.check_survivors(tuple(one for one in EVERY_RANK if one != rank))
    assert world.run.summary["alerts"] == {"rank_lost": 1}


@pytest.mark.parametrize("case", cases(KILL, "relay", phases=("compute", "mid_bucket")), ids=str)
def test_a_host_of_ranks_that_run_on_is_gone_and_the_others_train_its_part(
    start, case: Case
) -> None:
    world = start(*ASYNC, park=case.park, options=case.options)
    world.until_parked(*case.parked)
    world.strike(world.victim(case.victim), KILL)
    for rank in case.lost:
        assert case.names in world.lost(rank)
    world.go()
    assert world.finish() == 0
    world.check_whole()
    world.check_survivors((0, 1))
    assert world.run.summary["alerts"]["rank_lost"] == 2
