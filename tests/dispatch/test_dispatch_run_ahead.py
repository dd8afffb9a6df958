"""How many batches ranks that run on may hold, from plenty to the last one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.dispatch.final_window import apportion
from flodl_core.dispatch.run_ahead import run_ahead
from flodl_core.errors import LocalProtocolError

COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any)
LEFT = st.integers(0, 400)
OVERSHOOT = st.integers(0, 15)


def test_where_there_is_plenty_each_rank_may_overshoot_its_count():
    found = run_ahead(1000, (10, 10), 3)
    assert (found.batches, found.is_final) == ((13, 13), False)


def test_an_overshoot_takes_about_as_long_on_every_rank_and_is_at_least_a_batch():
    assert run_ahead(1000, (10, 120), 3).batches == (11, 123)
    assert run_ahead(1000, (10, 40, 20), 8).batches == (12, 48, 24)


def test_a_rank_that_is_gone_gets_nothing():
    assert run_ahead(1000, (10, 0, 30), 4).batches == (12, 0, 34)


def test_before_the_last_window_each_rank_runs_on_into_its_part_of_it_only():
    """After 30 batches 6 are left, of which the first rank will have 2 and the other 4."""
    found = run_ahead(36, (10, 20), 15)
    assert (found.batches, found.planned, found.is_final) == ((10, 24), (10, 20), False)
    assert run_ahead(36, (10, 20), 3).batches == (10, 23)
    assert run_ahead(62, (10, 20), 15).batches == (18, 35)


def test_an_overshoot_is_no_more_than_what_is_left_for_all():
    assert run_ahead(6, (1, 1), 15).batches == (3, 3)


def test_the_last_batches_are_shared_out_like_any_last_window():
    found = run_ahead(31, (10, 20), 15)
    assert (found.batches, found.is_final) == (apportion(31, (10, 20)), True)


def test_an_event_with_nothing_left_is_at_its_end():
    assert run_ahead(0, (10, 20), 3).batches == (0, 0)
    assert run_ahead(0, (10, 20), 3).is_final


@given(LEFT, COUNTS, OVERSHOOT)
def test_nobody_is_promised_what_is_not_there(left, counts, overshoot):
    found = run_ahead(left, counts, overshoot)
    assert sum(found.batches) <= left
    assert found.is_final is (sum(found.batches) == left and left < sum(counts) + len(counts))
    assert all(
        batches == 0 for batches, count in zip(found.batches, counts, strict=True) if not count
    )


@given(LEFT, COUNTS, OVERSHOOT)
def test_an_average_waits_for_counts_and_nobody_runs_further_than_the_overshoot(
    left, counts, overshoot
):
    found = run_ahead(left, counts, overshoot)
    if found.is_final:
        assert found.planned == found.batches
        return
    assert found.planned == tuple(counts)
    further = [b - c for b, c in zip(found.batches, counts, strict=True) if c]
    assert 0 <= min(further) <= max(further) <= overshoot
    if overshoot and left >= 2 * sum(counts) + len(counts):
        assert min(further) >= 1


@pytest.mark.parametrize(
    ("left", "counts", "overshoot"),
    [(10, (0, 0), 3), (10, (-1, 3), 3), (99, (-1, 3), 3), (10, (1, 2), -1), (-1, (1, 2), 3)],
)
def test_numbers_that_mean_nothing_are_refused(left, counts, overshoot):
    with pytest.raises(LocalProtocolError):
        run_ahead(left, counts, overshoot)
