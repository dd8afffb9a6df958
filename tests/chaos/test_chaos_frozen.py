"""SIGSTOP of each role in each phase: silence has a ceiling, and what follows has a name."""

import signal
import time

import pytest
from chaos_cases import PHASES, Case, cases
from chaos_world import EVERY_RANK, ChaosWorld
from harness import SHORT_S

from flodl_core.roles.host_join import FORMATION_SLACK_S

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(150)]

STOP, CONT = signal.SIGSTOP, signal.SIGCONT
CEILING_S = 6.0
"""Above the time for which a process that has burned CPU, as all do at their start, is busy."""
BEAT_S = 0.5
SLACK_S = 1.0
GRACE_S = 8.0
"""A rank of a host that dials in may leave its parameters before it ends, and its agent waits."""
WORDS = ("--heartbeat-timeout-s", f"{CEILING_S:g}", "--heartbeat-interval-s", f"{BEAT_S:g}")
TRAINING = tuple(phase for phase in PHASES if phase != "forming")


def struck(start, case: Case) -> tuple[ChaosWorld, float]:
    """Start a run, bring it to the case's phase, and stop the victim there."""
    world = start(*WORDS, park=case.park, options=case.options)
    world.until_parked(*case.parked)
    world.until_heard()
    return world, world.strike(world.victim(case.victim), STOP)


def check_at_ceiling(world: ChaosWorld, case: Case, at: float) -> None:
    """Each rank that is lost was so at the ceiling, give or take what the suite allows."""
    for rank in case.lost:
        told = world.lost(rank)
        assert case.names in told
        assert f"(ceiling {CEILING_S:g} s)" in told
        assert CEILING_S - SLACK_S <= world.told_after(at, rank) <= CEILING_S + SLACK_S


@pytest.mark.parametrize("case", cases(STOP, "near", "far", phases=TRAINING), ids=str)
def test_a_rank_that_is_stopped_is_lost_at_the_ceiling_and_ended(start, case: Case) -> None:
    world, at = struck(start, case)
    victim = world.victim(case.victim)
    check_at_ceiling(world, case, at)
    world.go()
    assert world.finish() == 0
    world.ended([victim], 0)
    world.check_whole()
    world.check_survivors(tuple(one for one in EVERY_RANK if one not in case.lost))
    assert world.run.summary["alerts"] == {"rank_lost": 1}


@pytest.mark.parametrize("case", cases(STOP, "relay", phases=TRAINING), ids=str)
def test_a_relay_that_is_stopped_loses_its_ranks_at_the_ceiling(start, case: Case) -> None:
    world, at = struck(start, case)
    check_at_ceiling(world, case, at)
    world.go()
    assert world.finish() == 0
    world.check_whole()
    world.check_survivors((0, 1))
    assert world.run.summary["alerts"]["rank_lost"] == 2
    assert set(world.run.summary["alerts"]) <= {"rank_lost", "partly_counted"}


@pytest.mark.parametrize("case", cases(STOP, "agent"), ids=str)
def test_an_agent_that_is_stopped_holds_nobody_up(start, case: Case) -> None:
    world, _ = struck(start, case)
    world.go()
    assert world.run.finish(leaves_guest=True) == 0
    world.victim(case.victim).send(CONT)
    assert world.finish() == 0
    world.check_whole()
    world.check_survivors(EVERY_RANK)
    assert world.run.summary["alerts"] == {}


@pytest.mark.parametrize("case", cases(STOP, "near", "far", "relay", phases=("forming",)), ids=str)
def test_who_is_stopped_before_the_world_gathers_fails_the_run_by_name(start, case: Case) -> None:
    world = start(*WORDS, "--rendezvous-timeout-s", f"{CEILING_S:g}", park=case.park)
    world.until_parked(*case.parked)
    world.until_heard()
    at = world.strike(world.victim(case.victim), STOP)
    world.run.until_phase("failed", CEILING_S + 2 * SLACK_S)
    assert time.time() - at <= CEILING_S + 2 * SLACK_S
    world.go()
    assert world.finish() == 1
    assert world.run.summary["reason"] == "rendezvous_failed"
    assert any(f"rank {rank}" in world.run.summary["detail"] for rank in case.lost)
    assert not world.run.stem.with_suffix(".meta.json").exists()


@pytest.mark.parametrize("case", cases(STOP, "launcher"), ids=str)
def test_everybody_else_ends_at_the_ceiling_when_the_launcher_is_stopped(start, case: Case) -> None:
    world, _ = struck(start, case)
    others = [one for one in world.run.processes().values() if one.name != "launcher"]
    world.go()
    world.ended(others, CEILING_S + GRACE_S)
    said = world.guest_ends()
    assert said.code == 7, said
    assert "the controller is gone" in said.err
    world.run.launcher.send(CONT)
    assert world.run.finish() == (0 if case.phase == "saving" else 1)
    world.run.check_quiet()
    world.check_no_sample_twice()


def test_a_guest_whose_launcher_is_stopped_in_the_window_ends_a_moment_after_its_cap(start) -> None:
    window = ("--min-rank-start", "6", "--target-ranks", "6", "--join-timeout-s", "20")
    world = start(*window, "--max-join-timeout-s", "20")
    world.until_joined(4)
    world.strike(world.run.launcher, STOP)
    said = world.guest_ends(20 + FORMATION_SLACK_S + SLACK_S)
    assert said.code == 6, said
    assert "the controller has said nothing" in said.err
    world.run.launcher.send(CONT)
    assert world.run.finish() == 3
    world.run.check_quiet()


def test_a_guest_that_is_stopped_in_the_window_is_named_when_the_world_forms_without_it(
    start,
) -> None:
    world = start("--min-rank-start", "5", "--target-ranks", "5", "--formation-timeout-s", "4")
    world.until_joined(4)
    stopped = world.victim("agent")
    world.strike(stopped, STOP)
    third = world.run.start_flodl(
        "join", world.run.address, "--host", "green", "--ranks", "1", "--run-dir", "green"
    )
    world.run.until_phase("failed", SHORT_S)
    assert third.finish().code == 0
    assert world.run.finish(leaves_guest=True) == 1
    assert "no relay of blue" in world.run.summary["detail"]
    stopped.send(CONT)
    assert world.finish() == 1
