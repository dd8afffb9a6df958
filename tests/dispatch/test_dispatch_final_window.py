"""The final window: worked examples, and what holds for all numbers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.dispatch.final_window import apportion, is_final_window
from flodl_core.errors import LocalProtocolError

COUNTS = st.lists(st.integers(0, 30), min_size=1, max_size=7).filter(any)


@pytest.mark.parametrize(
    ("remaining", "counts", "slots"),
    [
        (18, (10, 5, 3), (10, 5, 3)),
        (20, (10, 5, 3), (10, 6, 4)),  # the slowest first, the fastest never
        (19, (10, 5, 3), (10, 5, 4)),
        (6, (0, 4, 0), (0, 6, 0)),  # a lone alive rank takes it all
        (13, (5, 5), (5, 8)),  # of equally fast ranks the first counts as the fastest
        (9, (10, 5, 3), (5, 4, 0)),  # 5 / 2.5 / 1.5: (5, 3, 1), and the single one moves
        (1, (10, 5, 3), (1, 0, 0)),  # nobody to move it to
        (2, (1, 1, 1), (0, 2, 0)),  # two singles: the first moves onto the second
        (5, (3, 0, 3), (3, 0, 2)),  # equal fractions: the lowest index
        (0, (2, 2), (0, 0)),
        (7, (8, 1, 1), (5, 0, 2)),  # 5.6 / 0.7 / 0.7: (5, 1, 1), onto the smaller peer
    ],
)
def test_slots_are_as_worked_out_by_hand(remaining, counts, slots):
    assert apportion(remaining, counts) == slots


@given(COUNTS, st.integers(0, 300))
def test_slots_sum_to_the_remainder_and_the_dead_get_none(counts, remaining):
    slots = apportion(remaining, counts)
    assert sum(slots) == remaining
    assert all(slot == 0 for slot, count in zip(slots, counts, strict=True) if count == 0)


@given(COUNTS, st.data())
def test_a_short_window_leaves_a_single_batch_only_if_it_is_the_last_one(counts, data):
    remaining = data.draw(st.integers(0, sum(counts) - 1))
    slots = apportion(remaining, counts)
    assert 1 not in slots or remaining == 1


@given(COUNTS, st.data())
def test_with_enough_left_everybody_gets_the_full_count_and_the_slower_the_crumb(counts, data):
    crumb = data.draw(st.integers(0, len(counts) - 1))
    slots = apportion(sum(counts) + crumb, counts)
    extra = [slot - count for slot, count in zip(slots, counts, strict=True)]
    assert min(extra) >= 0
    alive = [rank for rank, count in enumerate(counts) if count]
    fastest = max(alive, key=lambda rank: counts[rank])
    assert extra[fastest] == 0 or len(alive) == 1
    by_speed = sorted((r for r in alive if r != fastest), key=lambda rank: counts[rank])
    assert all(extra[slow] - extra[fast] in (0, 1) for slow, fast in pairwise(by_speed))


@pytest.mark.parametrize(
    ("remaining", "counts"), [(3, ()), (3, (0, 0)), (3, (2, -1)), (-1, (2, 2))]
)
def test_numbers_that_cannot_be_apportioned_are_our_bug(remaining, counts):
    with pytest.raises(LocalProtocolError, match="a count above 0"):
        apportion(remaining, counts)


@pytest.mark.parametrize(("remaining", "final"), [(0, False), (1, True), (20, True), (21, False)])
def test_the_final_window_begins_below_the_sum_of_counts_plus_world(remaining, final):
    assert is_final_window(remaining, (10, 5, 3)) == final
