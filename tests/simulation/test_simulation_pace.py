"""Cohorts of given speeds under the real scheduler: shares of the ideal, steps, deaths, hiccups."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.coordinator.cadence import CadenceSettings
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.elche.settings import ElcheSettings
from flodl_core.errors import ConfigError
from flodl_core.ids import GuardKind, Mode
from flodl_core.simulation.pace_profile import (
    Death,
    Hiccup,
    PaceProfile,
    SpeedStep,
    read_death,
    read_hiccup,
    read_numbers,
    read_step,
)
from flodl_core.simulation.pace_world import PaceWorld, PlayedWindow, pace_envelope

CADENCE = Mode.CPU_CADENCE


def numbers(*, guard: GuardKind = GuardKind.LEVEL, meta: bool = True, **elche):
    cadence = CadenceSettings(elche=ElcheSettings(**elche), guard=guard, meta=meta)
    return CoordinatorSettings(cadence=cadence)


def play(
    profile: PaceProfile,
    windows: int = 40,
    *,
    seed: int = 1,
    mode: Mode = CADENCE,
    **elche,
) -> list[PlayedWindow]:
    envelope = pace_envelope(profile, seed=seed, mode=mode)
    return list(PaceWorld(profile, numbers(**elche), envelope).play(windows))


def steady(played: list[PlayedWindow], last: int = 20) -> float:
    done = sum(sum(window.batches) for window in played[-last:])
    return done / sum(window.ideal_batches for window in played[-last:])


def at(*batch_ms: float, **numbers) -> PaceProfile:
    return PaceProfile(batch_ms=batch_ms, **numbers)


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("profile", "bar"),
    [
        (at(5, 5, 60), 0.97),
        (at(10, 20, 40, 80), 0.97),
        (at(10, 10, 10, 10), 0.97),
        (at(5, 5, 60, jitter=0.2), 0.93),
        (at(10, 20, 40, 80, jitter=0.2), 0.93),
    ],
)
def test_a_cohort_reaches_nearly_the_sum_of_its_ranks(profile, bar):
    assert steady(play(profile, 60, overhead_target=0.02)) >= bar
    assert steady(play(profile, 60)) >= bar - 0.04


def test_the_first_window_is_equal_and_the_second_by_speed():
    played = play(at(5, 5, 60), 3)
    assert played[0].batches == (10, 10, 10)
    assert played[1].batches[2] == 10
    assert played[1].batches[0] == pytest.approx(120, rel=0.03)
    # 3 · 10 batches in 600 ms and an average, where 120 + 120 + 10 would fit into 600 ms
    assert played[0].share == pytest.approx(30 / 250, rel=0.05)


def test_who_waits_and_who_does_not_is_seen():
    first = play(at(5, 5, 60), 1)[0]
    assert first.took_ms == pytest.approx(10 * 60 + 2 + 15)
    assert first.busy_ms == pytest.approx((50, 50, 600))
    assert first.idle == pytest.approx((567 / 617, 567 / 617, 17 / 617))


@pytest.mark.slow
def test_counts_follow_a_tenfold_slow_down_within_twelve_windows():
    played = play(at(5, 5, 60, steps=(SpeedStep(15, 1, 10.0),)), 40, overhead_target=0.02)
    assert "rank 1" in played[14].notes[0]
    assert "is late" in played[14].notes[0]
    before, after = played[13].batches, played[26].batches
    assert before[1] == pytest.approx(before[0], rel=0.06)
    assert after[0] / after[1] == pytest.approx(10, rel=0.08)
    assert steady(played[26:], 10) >= 0.95


@pytest.mark.slow
def test_a_death_costs_its_own_window_and_the_others_go_on():
    played = play(at(5, 5, 60, deaths=(Death(10, 2),)), 30, overhead_target=0.02)
    died = played[9]
    assert died.batches[2] == 0
    assert any("rank 2" in note and "was lost" in note for note in died.notes)
    assert all(window.batches[2] == 0 for window in played[9:])
    assert played[-1].record.anchor_rank in (0, 1)
    assert steady(played, 10) >= 0.97


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.floats(10, 60), min_size=2, max_size=3),
    st.floats(0, 0.1),
    st.integers(8, 12),
    st.integers(0, 9),
)
def test_a_hiccup_of_five_seconds_does_not_change_the_anchor(speeds, jitter, window, seed):
    profile = at(*speeds, jitter=jitter, sync_ms=1.0, fill_ms=0.0)
    calm = play(profile, 16, seed=seed)
    shaken = play(replace(profile, hiccups=(Hiccup(window, 5000.0),)), 16, seed=seed)
    assert shaken[window - 1].took_ms > 5000
    assert {one.record.anchor for one in calm} == {one.record.anchor for one in shaken} == {10}


@pytest.mark.simulation
@pytest.mark.parametrize(
    "profile", [at(5, 5, 60), at(10, 20, 40, 80), at(10, 10, 10, 10), at(5, 5, 60, jitter=0.2)]
)
def test_ranks_that_run_on_lose_nothing_to_an_average(profile):
    """Not even a slow one: its 60 ms pass while everybody trains."""
    for sync_ms in (15.0, 60.0):
        slow = replace(profile, sync_ms=sync_ms)
        assert steady(play(slow, 60, mode=Mode.CPU_ASYNC)) >= 0.985
        assert steady(play(slow, 60, mode=Mode.CPU_ASYNC)) >= steady(play(slow, 60))


def test_ranks_that_run_on_get_counts_by_their_speeds_too():
    played = play(at(5, 5, 60), 12, mode=Mode.CPU_ASYNC)
    assert played[-1].record.batch_counts == pytest.approx((120, 120, 10), abs=6)
    assert sum(played[-1].batches) == pytest.approx(250, rel=0.1)


def test_a_rank_that_slows_down_tenfold_keeps_ranks_that_run_on_waiting_for_one_window():
    profile = at(10, 10, steps=(SpeedStep(8, 1, 10.0),))
    played = play(profile, 24, mode=Mode.CPU_ASYNC)
    assert any("begins early" in note for one in played[7:10] for note in one.notes)
    assert steady(played, 8) >= 0.97


def test_a_death_among_ranks_that_run_on_leaves_the_others_at_work():
    played = play(at(10, 10, 40, deaths=(Death(6, 2),)), 16, mode=Mode.CPU_ASYNC)
    assert steady(played, 6) >= 0.98
    assert played[-1].batches[2] == 0


def test_epochs_of_ranks_that_run_on_end_together():
    profile = at(5, 5, 60, epoch_batches=600)
    shares = [steady(play(profile, 40, mode=mode), 30) for mode in (CADENCE, Mode.CPU_ASYNC)]
    assert shares[1] >= shares[0] >= 0.9


@pytest.mark.slow
def test_a_learning_rate_far_too_high_on_one_rank_is_answered_and_told():
    """Its divergence grows as that of a rank does whose steps are thirty times too large."""
    climbing = tuple(0.02 * 1.5**number for number in range(14))
    profile = at(10, 20, sync_ms=60, divergences=climbing)
    calm = play(at(10, 20, sync_ms=60), 20)
    for guard in (GuardKind.LEVEL, GuardKind.GROWTH):
        world = PaceWorld(profile, numbers(guard=guard), pace_envelope(profile, seed=1))
        played = list(world.play(20))
        assert max(one.record.anchor for one in played) < calm[-1].record.anchor
        assert min(one.record.anchor for one in played) < 10
        told = [note for one in played for note in one.notes if "the anchor shrank" in note]
        assert told
        assert "divergence" in told[0]


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.floats(3, 60), min_size=2, max_size=4),
    st.integers(30, 200),
    st.floats(0, 0.2),
    st.integers(0, 5),
)
def test_every_epoch_ends_and_no_window_is_larger_than_it(speeds, epoch, jitter, seed):
    profile = at(*speeds, jitter=jitter, epoch_batches=epoch)
    played = play(profile, 25, seed=seed)
    assert len(played) == 25
    assert all(0 < sum(window.batches) <= epoch for window in played)
    assert all(window.share <= 1.3 for window in played)


def test_the_same_seed_plays_the_same():
    profile = at(5, 20, jitter=0.3)
    assert play(profile, 12, seed=3) == play(profile, 12, seed=3)
    assert play(profile, 12, seed=3) != play(profile, 12, seed=4)


def test_evaluations_are_played():
    played = play(at(10, 20, epoch_batches=60, eval_ms=100.0), 8)
    assert any("played" in note for one in played for note in one.notes)


# the words of the command line


def test_words_are_read():
    assert read_numbers("5, 5,60.5", field="speeds") == (5.0, 5.0, 60.5)
    assert read_step("20:1:10") == SpeedStep(20, 1, 10.0)
    assert read_death("30:2") == Death(30, 2)
    assert read_hiccup("10:5000") == Hiccup(10, 5000.0)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_step, "20:1"),
        (read_step, "a:1:10"),
        (read_step, "20:-1:10"),
        (read_death, "30"),
        (read_death, "30:x"),
        (read_death, "1:2:3"),
        (read_hiccup, "10:-5"),
        (read_hiccup, "10:nan"),
        (lambda text: read_numbers(text, field="speeds"), ""),
        (lambda text: read_numbers(text, field="speeds"), "5,x"),
    ],
)
def test_other_words_are_refused(read, text):
    with pytest.raises(ConfigError, match="expected"):
        read(text)


@pytest.mark.parametrize(
    "numbers",
    [
        {"batch_ms": ()},
        {"batch_ms": (5.0,) * 257},
        {"batch_ms": (5.0, 0.0)},
        {"batch_ms": (5.0, float("nan"))},
        {"jitter": 1.0},
        {"jitter": -0.1},
        {"sync_ms": float("inf")},
        {"fill_ms": -1.0},
        {"eval_ms": -1.0},
        {"epoch_batches": 1},
        {"divergences": (float("nan"),)},
        {"steps": (SpeedStep(0, 1, 2.0),)},
        {"steps": (SpeedStep(1, 2, 2.0),)},
        {"steps": (SpeedStep(1, 1, 0.0),)},
        {"deaths": (Death(0, 1),)},
        {"deaths": (Death(1, 2),)},
    ],
)
def test_numbers_out_of_range_are_refused(numbers):
    with pytest.raises(ConfigError, match="expected"):
        PaceProfile(**{"batch_ms": (5.0, 10.0)} | numbers)
