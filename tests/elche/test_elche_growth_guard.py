"""The guard on the growth of divergence, against rates worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.growth_guard import GrowthGuard
from flodl_core.elche.guards import (
    ConvergenceGuard,
    DivergenceReport,
    NudgeDown,
    Stable,
    SuppressGrowth,
)

DIVERGENCES = st.lists(st.one_of(st.floats(0, 5), st.just(0.0)), max_size=20)


def report(largest: float, batches: int = 10) -> DivergenceReport:
    return DivergenceReport(divergences={0: largest, 1: largest / 3}, n_batches={0: batches, 1: 2})


def growing(rate: float, cycles: int, *, batches: int = 10) -> list[DivergenceReport]:
    """Cycles whose divergence grows by `rate` a batch."""
    return [report(0.01 * math.exp(rate * batches * cycle), batches) for cycle in range(cycles)]


def kinds(guard: ConvergenceGuard, reports: list[DivergenceReport]) -> list[type]:
    return [type(guard.review(one)) for one in reports]


def test_the_first_cycle_of_a_steady_growth_has_the_rate_itself():
    guard = GrowthGuard()
    for one in growing(0.004, 2):
        guard.review(one)
    assert guard.rate == pytest.approx(0.004)


def test_the_rate_is_the_bias_corrected_mean_of_weight_a_tenth():
    guard = GrowthGuard()
    for largest in (0.01, 0.02, 0.01, 0.03):
        guard.review(report(largest, 10))
    steps = [math.log(2) / 10, math.log(0.5) / 10, math.log(3) / 10]
    weighted = 0.1 * (0.81 * steps[0] + 0.9 * steps[1] + steps[2])
    assert guard.rate == pytest.approx(weighted / (1 - 0.9**3))


def test_a_growth_above_a_thousandth_suppresses_at_its_third_rate():
    assert kinds(GrowthGuard(), growing(0.002, 6)) == [
        *[Stable] * 3,
        SuppressGrowth,
        *[Stable] * 2,
    ]


def test_a_growth_below_a_thousandth_is_stable():
    assert set(kinds(GrowthGuard(), growing(0.0009, 12))) == {Stable}


def test_a_growth_above_a_hundredth_halves_the_window():
    guard = GrowthGuard()
    reports = growing(0.02, 4)
    for one in reports[:3]:
        guard.review(one)
    assert guard.review(reports[3]) == NudgeDown(
        0.5, "divergence grows by 2.00% a batch, above 1.00% three times"
    )


def test_a_verdict_ends_its_own_streak_only():
    found = kinds(GrowthGuard(), growing(0.02, 8))
    assert found == [
        *[Stable] * 3,
        NudgeDown,
        SuppressGrowth,
        Stable,
        NudgeDown,
        SuppressGrowth,
    ]


def test_a_missing_rate_resets_both_streaks():
    reports = growing(0.02, 6)
    reports.insert(3, report(0.0))
    # the fourth value has nothing to be compared with, the sixth is the second rate since
    assert kinds(GrowthGuard(), reports) == [Stable] * 7


def test_noise_clears_the_value_before_and_keeps_the_rate():
    guard = GrowthGuard()
    for one in growing(0.02, 3):
        guard.review(one)
    rate = guard.rate
    guard.review(report(1e-9))
    assert guard.rate == rate
    assert guard.history[0] == 0.0


def test_a_window_without_batches_has_no_rate():
    guard = GrowthGuard()
    for one in growing(0.02, 5):
        guard.review(DivergenceReport(divergences=one.divergences))
    assert guard.rate is None


def test_the_rate_is_by_the_rank_that_did_most():
    guard = GrowthGuard()
    for largest in (0.01, 0.02):
        guard.review(DivergenceReport(divergences={0: largest}, n_batches={0: 4, 1: 40}))
    assert guard.rate == pytest.approx(math.log(2) / 40)


def test_a_cycle_without_a_divergence_changes_nothing():
    guard = GrowthGuard()
    for one in growing(0.02, 3):
        guard.review(one)
    before = guard.history
    assert guard.review(DivergenceReport(n_batches={0: 10})) == Stable()
    assert guard.history == before


def test_an_infinite_threshold_turns_the_nudge_off():
    found = kinds(GrowthGuard(nudge_rate=math.inf), growing(0.05, 12))
    assert NudgeDown not in found
    assert SuppressGrowth in found


@given(DIVERGENCES, DIVERGENCES)
def test_a_restored_guard_judges_as_the_one_that_was_saved(before, after):
    saved, restored = GrowthGuard(), GrowthGuard()
    for largest in before:
        saved.review(report(largest))
    restored.restore(saved.history)
    assert restored.name == "growth"
    for largest in after:
        assert restored.review(report(largest)) == saved.review(report(largest))


@pytest.mark.parametrize("history", [(), (0.1, 0.2), (0.1, math.nan, 0.0, 0.0, 0.0)])
def test_a_history_of_another_form_is_not_taken_up(history):
    guard = GrowthGuard()
    guard.restore(history)
    assert guard.history == (0.0, 0.0, 0.0, 0.0, 0.0)


@given(DIVERGENCES)
def test_a_shrinking_divergence_is_always_stable(values):
    guard = GrowthGuard()
    assert set(kinds(guard, [report(value) for value in sorted(values, reverse=True)])) <= {Stable}
