"""A rank's speed: the mean of five windows, steady under one hiccup, quick after a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.speed import CohortSpeeds, SpeedRing, median
from flodl_core.ids import Rank

MS = st.floats(0.01, 1e5)


def ring(*samples_ms: float) -> SpeedRing:
    made = SpeedRing()
    for sample in samples_ms:
        made.push(sample)
    return made


def test_nothing_is_known_of_a_new_rank():
    assert ring().mean_ms is None
    assert not ring().is_forgotten


@pytest.mark.parametrize(
    ("samples", "mean"),
    [
        ((8,), 8),
        ((8, 12), 10),
        ((8, 10, 12, 14, 16), 12),
        ((8, 10, 12, 14, 16, 18), 14),  # the first of six has left
        ((10, 10, 10, 100), 10),  # a hiccup
        ((10, 10, 1), 10),  # alone below half
        ((100, 10, 10), 10),  # the first window was warm-up
        ((10, 10, 10, 100, 100), 100),  # two in a row are a step
        ((100, 100, 100, 100, 10, 10), 10),
        ((10, 100, 100), 100),
        ((10, 20.5, 20.5), 20.5),
        ((10, 20, 20), 50 / 3),  # twice is not beyond twice
        ((10, 100, 10, 100, 10), 46),  # two odd ones apart are no hiccup and no step
        ((10, 10, 10, 100, 1), 131 / 5),  # one slower and one faster neither
    ],
)
def test_means_are_as_worked_out_by_hand(samples, mean):
    assert ring(*samples).mean_ms == pytest.approx(mean)


def test_five_misses_in_a_row_clear_the_ring():
    speeds = ring(10, 12)
    for _ in range(4):
        speeds.miss()
    assert speeds.mean_ms == 11
    speeds.push(14)
    for _ in range(4):
        speeds.miss()
    assert speeds.mean_ms == 12
    assert not speeds.is_forgotten
    speeds.miss()
    assert speeds.is_forgotten
    assert speeds.mean_ms is None
    speeds.push(7)
    assert (speeds.mean_ms, speeds.is_forgotten) == (7, False)


def test_a_cohort_gives_samples_and_misses():
    cohort = CohortSpeeds([Rank(0), Rank(1)])
    cohort.push({Rank(0): 5.0})
    assert cohort.means_ms == {0: 5.0}
    for _ in range(4):
        cohort.push({Rank(0): 5.0})
    assert cohort.is_forgotten(Rank(1))
    assert not cohort.is_forgotten(Rank(0))
    assert cohort.lose(Rank(0))
    assert not cohort.lose(Rank(0))
    assert cohort.ranks == (1,)


def test_the_median_of_an_even_number_is_the_lower_middle():
    assert median([3.0]) == 3
    assert median([9.0, 1.0]) == 1
    assert median([9.0, 1.0, 5.0]) == 5


@pytest.mark.slow
@given(st.lists(MS, min_size=1, max_size=20))
def test_the_mean_lies_among_the_last_five_samples(samples):
    last = samples[-5:]
    mean = ring(*samples).mean_ms
    assert mean is not None
    assert min(last) * (1 - 1e-9) <= mean <= max(last) * (1 + 1e-9)


@pytest.mark.slow
@given(
    st.lists(st.floats(80, 120), min_size=5, max_size=5), st.floats(0.01, 1e6), st.integers(0, 4)
)
def test_one_hiccup_in_a_steady_ring_moves_the_mean_by_less_than_the_jitter(steady, odd, place):
    disturbed = [*steady[:place], odd, *steady[place:]][-5:]
    mean = ring(*disturbed).mean_ms
    assert mean is not None
    assert 64 - 1e-9 <= mean <= 160 + 1e-9


@pytest.mark.slow
@given(st.lists(st.floats(95, 105), min_size=2, max_size=9), st.floats(2.5, 100))
def test_a_step_is_known_after_two_windows(steady, factor):
    slow = ring(*steady, 100 * factor, 100 * factor)
    fast = ring(*steady, 100 / factor, 100 / factor)
    assert slow.mean_ms == pytest.approx(100 * factor)
    assert fast.mean_ms == pytest.approx(100 / factor)
