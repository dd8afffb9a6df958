"""Runs on NCCL under the real coordinator: deaths anywhere, sessions formed anew, saves."""

import pytest
from coordinator_script import Script
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_world import World

from flodl_core.coordinator.effects import RaiseAlert
from flodl_core.ids import ExitCode, Mode, Rank, RankPhase, SaveReason, Session
from flodl_core.messages import timing

MODES = (Mode.NCCL_CADENCE, Mode.NCCL_SYNC)


def check_whole(world: World, epochs: int) -> None:
    """Every sample of every pass was trained once; everybody who is left holds one value."""
    assert len(world.trained) == epochs * world.n_samples
    values = {one.kept for one in world.ranks.values() if one.left}
    assert len(values) == 1
    assert world.saves[-1][1] is None


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6), mode=st.sampled_from(MODES))
def test_a_calm_run_trains_every_sample_once_and_is_saved(seed: int, mode: Mode) -> None:
    world = World(seed, mode=mode, epochs=2)
    finished = world.run()
    assert finished.exit_code == ExitCode.DONE
    check_whole(world, 2)
    assert set(world.sessions) == {0}


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), mode=st.sampled_from(MODES), kills=st.integers(1, 3))
def test_survivors_go_on_from_one_value_and_no_sample_is_lost(
    seed: int, mode: Mode, kills: int
) -> None:
    world = World(seed, mode=mode, kills=kills, ranks=5, epochs=2)
    finished = world.run()
    assert finished.exit_code == ExitCode.DONE, finished
    check_whole(world, 2)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), mode=st.sampled_from(MODES), ranks=st.integers(2, 4))
def test_the_last_one_averages_with_itself_is_saved_and_stops(
    seed: int, mode: Mode, ranks: int
) -> None:
    world = World(seed, mode=mode, kills=ranks - 1, ranks=ranks, epochs=50)
    finished = world.run()
    assert finished.exit_code == ExitCode.STOPPED_SAVED, finished
    assert finished.reason == SaveReason.SINGLE_SURVIVOR.value
    assert world.saves[-1][1] is None
    assert world.ranks[0].left


def test_too_many_deaths_end_the_run_with_what_was_averaged_last() -> None:
    world = World(3, kills=2, ranks=5, epochs=50, max_failure=2)
    finished = world.run()
    assert finished.exit_code == ExitCode.FAILED
    assert finished.reason == SaveReason.MAX_FAILURE_EXCEEDED.value
    assert world.saves[-1][1] is None


@pytest.mark.slow
@pytest.mark.simulation
def test_sixty_seeds_end_as_they_should() -> None:
    for seed in range(60):
        mode = MODES[seed % 2]
        finished = World(seed, mode=mode, kills=seed % 4, epochs=3).run()
        assert finished.exit_code in (ExitCode.DONE, ExitCode.STOPPED_SAVED), (seed, finished)


def test_a_stall_names_the_collective_that_each_rank_is_in() -> None:
    script = Script((("red", 2),), mode=Mode.NCCL_SYNC).start()
    for rank in range(2):
        script.tell(rank, timing.NcclSessionFormed(rank=Rank(rank), session=Session(0)))
    for rank in range(2):
        script.batch(rank)
    script.heartbeat = lambda rank: timing.Heartbeat(
        rank=Rank(rank),
        step_count=1,
        phase=RankPhase.REDUCING,
        activity=f"PARAM #{rank + 1} of session 0",
    )
    script.wait(320, beating=(0, 1))
    finished = [one for one in script.said if isinstance(one, RaiseAlert)]
    assert any("rank 1 is in PARAM #2 of session 0" in one.detail for one in finished), finished


def test_a_wait_shows_the_session_and_the_collective_that_it_is_for() -> None:
    script = Script((("red", 2),), mode=Mode.NCCL_SYNC).start()
    script.tell(0, timing.NcclSessionFormed(rank=Rank(0), session=Session(0)))
    script.wait(10, beating=(0, 1))
    forming = [one for one in script.machine.view(script.now).waits if "session 0" in one.phase]
    assert [(one.rank, one.outcome) for one in forming] == [(1, "it is evicted")]
    script.tell(1, timing.NcclSessionFormed(rank=Rank(1), session=Session(0)))
    for rank in range(2):
        script.batch(rank)
    script.heartbeat = lambda rank: timing.Heartbeat(
        rank=Rank(rank), step_count=1, phase=RankPhase.REDUCING, activity="COUNT #1"
    )
    script.wait(10, beating=(0, 1))
    phases = [one.phase for one in script.machine.view(script.now).waits]
    assert phases.count("reduce: waiting for the average, in COUNT #1") == 2
