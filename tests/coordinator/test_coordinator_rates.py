"""The rates: whole half minutes at any pace, of each rank what it does now."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.coordinator.rates import CommitRates
from flodl_core.ids import Rank

A, B = Rank(0), Rank(1)


def paced(window_s, windows, *samples, since=0.0):
    rates, now = CommitRates(), since
    for _ in range(windows):
        now += window_s
        rates.add(now, dict(zip((A, B), samples, strict=False)))
    return rates, now


@pytest.mark.parametrize("window_s", [0.001, 0.015, 0.1, 0.3, 2.0, 29.0, 100.0])
def test_the_rate_is_right_at_any_pace(window_s):
    rates, now = paced(window_s, max(5, int(40 / window_s)), 24, 8)
    assert rates.rate([A, B], now) == pytest.approx(32 / window_s, rel=0.02)
    assert rates.rate([A], now) == pytest.approx(24 / window_s, rel=0.02)
    assert rates.rate([], now) == 0


def test_a_pause_of_three_seconds_costs_a_tenth_where_windows_are_short():
    rates, now = paced(0.015, 4000, 32)
    assert rates.rate([A], now + 3.0) == pytest.approx(32 / 0.015 * 27 / 30, rel=0.02)


def test_a_rank_that_slows_down_is_shown_so_within_half_a_minute():
    rates, now = paced(1.0, 3600, 32, 32)
    for _ in range(30):
        now += 1.0
        rates.add(now, {A: 48, B: 12})
    assert rates.rate([A], now) == pytest.approx(48.0)
    assert rates.rate([B], now) == pytest.approx(12.0)


def test_one_commit_is_no_rate():
    rates = CommitRates()
    assert rates.rate([A], 5.0) is None
    rates.add(1.0, {A: 4})
    assert rates.rate([A], 5.0) is None


@given(st.lists(st.tuples(st.floats(0.0, 50.0), st.integers(0, 100)), max_size=60))
def test_no_rate_is_more_than_all_samples_over_the_shortest_time_they_took(commits):
    rates, now, total = CommitRates(), 0.0, 0
    for wait_s, samples in commits:
        now += wait_s
        total += samples
        rates.add(now, {A: samples})
    rate = rates.rate([A], now)
    assert rate is None or 0 <= rate * 0.25 <= total
