"""Guards: what divergences say."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.guards import (
    ConvergenceGuard,
    DivergenceReport,
    LevelGuard,
    NoGuard,
    Stable,
    SuppressGrowth,
    Verdict,
)

DIVERGENCES = st.lists(st.floats(0, 2), max_size=12)


def report(*divergences: float) -> DivergenceReport:
    return DivergenceReport(divergences=dict(enumerate(divergences)))


def review_all(guard: ConvergenceGuard, *largest: float) -> Verdict:
    verdict: Verdict = Stable()
    for value in largest:
        verdict = guard.review(report(value, value / 2))
    return verdict


@pytest.mark.parametrize(
    ("largest", "suppressed"),
    [
        ((), False),
        ((9.0,), False),
        ((8.0, 9.0), False),  # fewer than three
        ((0.01, 0.02, 0.06), True),
        ((0.01, 0.02, 0.05), False),  # not above the threshold
        ((0.3, 0.2, 0.1), False),
        ((0.1, 0.2, 0.2), False),  # strictly
        ((0.2, 0.1, 0.2, 0.3), True),  # only the last three count
        ((0.1, 0.2, 0.3, 0.2), False),
    ],
)
def test_the_level_guard_is_as_worked_out_by_hand(largest, suppressed):
    verdict = review_all(LevelGuard(), *largest)
    assert isinstance(verdict, SuppressGrowth if suppressed else Stable)


def test_the_level_guard_gives_its_reason():
    verdict = review_all(LevelGuard(), 0.01, 0.02, 0.0625)
    assert verdict == SuppressGrowth(
        "divergence rose three cycles in a row (0.01, 0.02, 0.0625) and is above 0.05"
    )


def test_the_threshold_is_a_choice():
    assert isinstance(review_all(LevelGuard(0.3), 0.1, 0.2, 0.3), Stable)
    assert isinstance(review_all(LevelGuard(0.3), 0.1, 0.2, 0.31), SuppressGrowth)


def test_the_largest_finite_divergence_of_the_ranks_counts():
    assert report(0.1, 0.4, 0.2).largest_divergence == 0.4
    assert report(0.1, math.nan, math.inf).largest_divergence == 0.1
    assert report().largest_divergence is None


def test_a_cycle_without_a_divergence_is_stable_and_no_sample():
    guard = LevelGuard()
    review_all(guard, 0.1, 0.2)
    assert guard.review(report()) == Stable()
    assert guard.history == (0.1, 0.2)
    assert isinstance(guard.review(report(0.3)), SuppressGrowth)


def test_history_is_the_last_five_and_can_be_taken_up():
    guard = LevelGuard()
    review_all(guard, 1, 2, 3, 4, 5, 6)
    assert guard.history == (2, 3, 4, 5, 6)
    other = LevelGuard()
    other.restore([9, *guard.history, math.nan])
    assert other.history == guard.history


def test_without_a_guard_everything_is_stable():
    guard = NoGuard()
    guard.restore([1.0])
    assert review_all(guard, 1, 2, 3) == Stable()
    assert guard.history == ()
    assert (guard.name, LevelGuard().name) == ("none", "level")


@pytest.mark.slow
@given(DIVERGENCES, st.floats(0, 1))
def test_the_level_guard_never_nudges_and_its_reasons_hold(largest, threshold):
    guard = LevelGuard(threshold)
    for number in range(len(largest)):
        verdict = guard.review(report(largest[number]))
        last = largest[max(0, number - 2) : number + 1]
        expected = len(last) == 3 and last[0] < last[1] < last[2] and last[2] > threshold
        assert isinstance(verdict, SuppressGrowth) is expected
    assert guard.history == tuple(largest[-5:])
