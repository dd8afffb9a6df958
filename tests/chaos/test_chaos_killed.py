"""SIGKILL of each role in each phase: the others go on, or everything ends, and is named."""

import signal

import pytest
from chaos_cases import PHASES, Case, cases
from chaos_world import EVERY_RANK, ChaosWorld

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(150)]

KILL = signal.SIGKILL
TOLD_IN_S = 1.0
"""The ceiling is milliseconds, so that a second is all there is."""
GONE_IN_S = 6.0
"""From the launcher's end to the end of a host that dialled in: it may write a file before."""
TRAINING = tuple(phase for phase in PHASES if phase != "forming")


def struck(start, case: Case) -> tuple[ChaosWorld, float]:
    """Start a run, bring it to the case's phase, and kill the victim there."""
    world = start(park=case.park, options=case.options)
    world.until_parked(*case.parked)
    return world, world.strike(world.victim(case.victim), KILL)


@pytest.mark.parametrize("case", cases(KILL, "near", "far", phases=TRAINING), ids=str)
def test_a_rank_that_is_killed_is_named_and_its_samples_go_to_the_others(start, case: Case) -> None:
    world, at = struck(start, case)
    (rank,) = case.lost
    assert case.names in world.lost(rank)
    assert world.told_after(at, rank) < TOLD_IN_S
    world.go()
    assert world.finish() == 0
    world.check_whole()
    world.check_survivors(tuple(one for one in EVERY_RANK if one != rank))
    assert world.run.summary["alerts"] == {"rank_lost": 1}


@pytest.mark.parametrize("case", cases(KILL, "agent", "relay", phases=TRAINING), ids=str)
def test_a_host_whose_agent_or_relay_is_killed_is_gone_and_the_others_go_on(
    start, case: Case
) -> None:
    world, at = struck(start, case)
    for rank in case.lost:
        assert case.names in world.lost(rank)
        assert world.told_after(at, rank) < TOLD_IN_S
    world.go()
    assert world.finish(guest_code=-KILL if case.role == "agent" else 0) == 0
    world.check_whole()
    world.check_survivors((0, 1))
    assert world.run.summary["alerts"]["rank_lost"] == 2
    assert set(world.run.summary["alerts"]) <= {"rank_lost", "partly_counted"}


@pytest.mark.parametrize(
    "case", cases(KILL, "near", "far", "agent", "relay", phases=("forming",)), ids=str
)
def test_who_is_killed_before_the_world_gathers_fails_the_run_by_name(start, case: Case) -> None:
    world, _ = struck(start, case)
    assert world.finish(guest_code=-KILL if case.role == "agent" else 0) == 1
    assert world.run.summary["reason"] == "rendezvous_failed"
    assert case.names in world.run.summary["detail"]
    assert any(f"rank {rank}" in world.run.summary["detail"] for rank in case.lost)
    assert not world.run.stem.with_suffix(".meta.json").exists()


@pytest.mark.parametrize("case", cases(KILL, "launcher"), ids=str)
def test_nothing_outlives_a_launcher_that_is_killed(start, case: Case) -> None:
    world = start(park=case.park, options=case.options)
    world.until_parked(*case.parked)
    children = world.run.children_of_launcher()
    assert len(children) == 2
    world.strike(world.run.launcher, KILL)
    world.go()
    world.ended(children, TOLD_IN_S)
    said = world.guest_ends(GONE_IN_S)
    assert said.code == 7, said
    assert "the launcher is gone" in said.err
    world.run.await_all_gone(TOLD_IN_S)
    world.check_no_sample_twice()


def test_a_guest_that_is_killed_in_the_window_is_taken_off_the_list(start) -> None:
    world = start("--min-rank-start", "6", "--target-ranks", "6")
    world.until_joined(4)
    world.strike(world.victim("agent"), KILL)
    world.run.until_said("left", "blue", TOLD_IN_S)
    world.until_joined(2, TOLD_IN_S)
    assert world.run.document["phase"] == "waiting"
    world.run.signal(signal.SIGTERM)
    assert world.run.finish() == 3
    world.run.check_quiet()


def test_a_guest_whose_launcher_is_killed_in_the_window_says_so_and_ends(start) -> None:
    world = start("--min-rank-start", "6", "--target-ranks", "6")
    world.until_joined(4)
    world.strike(world.run.launcher, KILL)
    said = world.guest_ends(GONE_IN_S)
    assert said.code == 6, said
    assert "ended the connection before the world formed" in said.err
    world.run.await_all_gone(TOLD_IN_S)
