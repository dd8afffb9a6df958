"""Counts from speeds, and the bounds they keep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.counts import bounded_counts, fit_to_cap, leaves_dead_zone, wanted_count

COUNTS = st.lists(st.integers(1, 300), min_size=1, max_size=9).map(lambda c: dict(enumerate(c)))


@pytest.mark.parametrize(
    ("anchor", "slow_ms", "own_ms", "count"),
    [
        (10, 60, 60, 10),
        (10, 60, 5, 120),
        (10, 60, 7, 86),  # 85.7
        (10, 60, 600, 1),
        (10, 60, 6000, 1),  # 0.1: at least 1
        (10, 60, 80, 8),  # 7.5 to the even neighbour
        (10, 6400, 1, 640),  # at most 64 times
        (10, 60, 0, 10),  # unknown
        (10, 60, 60 + 1e-7, 10),
    ],
)
def test_wanted_counts_are_as_worked_out_by_hand(anchor, slow_ms, own_ms, count):
    assert wanted_count(anchor, slow_ms, own_ms) == count


def test_a_change_of_five_percent_stays_in_the_dead_zone():
    assert not leaves_dead_zone(105, 100)
    assert not leaves_dead_zone(95, 100)
    assert leaves_dead_zone(106, 100)
    assert leaves_dead_zone(94, 100)
    assert leaves_dead_zone(11, 10)
    assert not leaves_dead_zone(10, 10)


@pytest.mark.parametrize(
    ("counts", "cap", "fitted"),
    [
        ((120, 120, 10), 125, (60, 60, 5)),
        ((120, 120, 10), 126, (60, 61, 5)),  # the rest to the largest, the last of equals
        ((120, 120, 10), 127, (61, 61, 5)),
        ((10, 10, 10, 10), 39, (9, 10, 10, 10)),  # not all of it to one rank
        ((1000, 1, 1), 10, (8, 1, 1)),  # at least 1 each
        ((5, 5, 5), 2, (1, 1, 1)),  # also above the cap
        ((7, 3), 10, (7, 3)),
    ],
)
def test_counts_fit_the_cap_as_worked_out_by_hand(counts, cap, fitted):
    assert tuple(fit_to_cap(dict(enumerate(counts)), cap).values()) == fitted


def test_without_bounds_counts_are_what_is_wanted():
    bounded = bounded_counts({0: 120, 1: 10}, cap_batches=None, max_batch_diff=None)
    assert bounded.counts == {0: 120, 1: 10}
    assert not bounded.cap_binding


def test_no_count_exceeds_the_smallest_by_more_than_the_difference():
    assert bounded_counts({0: 120, 1: 10}, cap_batches=None, max_batch_diff=30).counts == {
        0: 40,
        1: 10,
    }
    assert bounded_counts({0: 120, 1: 10}, cap_batches=None, max_batch_diff=0).counts == {
        0: 10,
        1: 10,
    }


def test_the_cap_binds_only_if_it_makes_counts_smaller():
    assert not bounded_counts({0: 7, 1: 3}, cap_batches=10, max_batch_diff=None).cap_binding
    assert bounded_counts({0: 7, 1: 3}, cap_batches=9, max_batch_diff=None).cap_binding
    assert not bounded_counts({0: 70, 1: 3}, cap_batches=10, max_batch_diff=0).cap_binding


def test_nobody_left_is_no_error():
    bounded = bounded_counts({}, cap_batches=5, max_batch_diff=2)
    assert (bounded.counts, bounded.cap_binding) == ({}, False)


@pytest.mark.slow
@given(COUNTS, st.integers(1, 2000))
def test_fitted_counts_sum_to_the_cap_or_are_one_each(counts, cap):
    cap = min(cap, sum(counts.values()))
    fitted = fit_to_cap(counts, cap)
    assert sum(fitted.values()) == max(cap, len(counts))
    assert min(fitted.values()) >= 1
    assert all(fitted[rank] <= count for rank, count in counts.items())


@pytest.mark.slow
@given(COUNTS, st.integers(1, 2000))
def test_fitting_keeps_the_order_of_counts(counts, cap):
    fitted = fit_to_cap(counts, min(cap, sum(counts.values())))
    for a, count_a in counts.items():
        for b, count_b in counts.items():
            if count_a > count_b:
                assert fitted[a] >= fitted[b]


@pytest.mark.slow
@given(COUNTS, st.none() | st.integers(1, 2000), st.none() | st.integers(0, 100))
def test_bounded_counts_keep_both_bounds_and_never_exceed_what_is_wanted(counts, cap, diff):
    bounded = bounded_counts(counts, cap_batches=cap, max_batch_diff=diff).counts
    assert all(1 <= bounded[rank] <= count for rank, count in counts.items())
    if cap is not None:
        assert sum(bounded.values()) <= max(cap, len(counts))
    if diff is not None:
        assert max(bounded.values()) - min(bounded.values()) <= diff
