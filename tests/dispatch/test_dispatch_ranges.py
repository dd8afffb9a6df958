"""Ranges against sets of positions."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.dispatch.ranges import (
    Range,
    append_range,
    merge_ranges,
    overlap_size,
    subtract_ranges,
    take_samples,
    total_size,
)
from flodl_core.errors import LocalProtocolError

RANGES = st.lists(st.builds(Range, st.integers(0, 40), st.integers(0, 12)), max_size=8)


def positions(parts):
    return [at for part in parts for at in range(part.offset, part.offset + part.size)]


def assert_normal(parts):
    assert all(part.size > 0 for part in parts)
    assert all(left.end < right.offset for left, right in pairwise(parts))


@given(RANGES)
def test_merging_keeps_every_position_once_in_the_fewest_ranges(parts):
    merged = merge_ranges(parts)
    assert positions(merged) == sorted(set(positions(parts)))
    assert_normal(merged)


@given(RANGES, RANGES)
def test_subtracting_leaves_exactly_the_positions_in_no_hole(whole, holes):
    left = subtract_ranges(whole, holes)
    assert positions(left) == sorted(set(positions(whole)) - set(positions(holes)))
    assert_normal(left)


@given(RANGES)
def test_overlap_counts_each_extra_time_a_position_is_covered(parts):
    listed = positions(parts)
    assert overlap_size(parts) == len(listed) - len(set(listed))
    assert total_size(parts) == len(listed)


@given(RANGES, st.integers(-2, 100))
def test_taking_samples_keeps_the_order_of_the_list(parts, samples):
    taken, rest = take_samples(parts, samples)
    assert positions(taken) + positions(rest) == positions(parts)
    assert len(positions(taken)) == min(max(samples, 0), total_size(parts))
    assert all(part.size for part in taken + rest)


@given(st.builds(Range, st.integers(0, 40), st.integers(0, 12)), st.integers(-3, 20))
def test_splitting_a_range_never_leaves_it(part, size):
    head, tail = part.split(size)
    assert positions([head, tail]) == positions([part])
    assert head.size == min(max(size, 0), part.size)
    assert tail.end == part.end


def test_appending_joins_a_range_that_touches_the_last_one():
    parts = [Range(0, 4)]
    append_range(parts, Range(4, 2))
    append_range(parts, Range(9, 1))
    append_range(parts, Range(20, 0))
    assert parts == [Range(0, 6), Range(9, 1)]


@pytest.mark.parametrize(("offset", "size"), [(-1, 3), (0, -1)])
def test_a_negative_range_is_refused_with_its_numbers(offset, size):
    with pytest.raises(LocalProtocolError, match=f"offset {offset} and size {size}"):
        Range(offset, size)
