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
    found = run_ahead(1000, (10, 120), 3)
    assert (found.batches, found.is_final) == ((13, 123), False)


def test_a_rank_that_is_gone_gets_nothing():
    assert run_ahead(1000, (10, 0, 30), 4).batches == (14, 0, 34)


def test_the_overshoot_shrinks_before_the_counts_do():
    assert run_ahead(37, (10, 20), 15).batches == (13, 23)
    assert run_ahead(33, (10, 20), 15).batches == (11, 21)


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
def test_away_from_the_end_everybody_has_the_count_and_the_same_overshoot(left, counts, overshoot):
    found = run_ahead(left, counts, overshoot)
    if found.is_final:
        return
    further = {b - c for b, c in zip(found.batches, counts, strict=True) if c}
    assert len(further) == 1
    assert 0 <= further.pop() <= overshoot


@pytest.mark.parametrize(
    ("left", "counts", "overshoot"),
    [(10, (0, 0), 3), (10, (-1, 3), 3), (10, (1, 2), -1), (-1, (1, 2), 3)],
)
def test_numbers_that_mean_nothing_are_refused(left, counts, overshoot):
    with pytest.raises(LocalProtocolError):
        run_ahead(left, counts, overshoot)
