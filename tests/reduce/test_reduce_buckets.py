"""Spans and buckets: every active value once, in order, in buckets of the right size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Cycle
from flodl_core.messages.job import Geometry, Segment
from flodl_core.reduce.buckets import (
    Run,
    active_segments,
    active_spans,
    bucket_values,
    buffer_spans,
    covers_region,
    cut_buckets,
)


def geometry(sizes: list[int], frozen: tuple[int, ...] = ()) -> Geometry:
    made, at = [], 0
    for index, size in enumerate(sizes):
        made.append(
            Segment(
                name=str(index),
                dtype="float32",
                shape=(size,),
                offset=at,
                numel=size,
                trainable=index not in frozen,
                views=(),
            )
        )
        at += -(-size // 16) * 16
    segments = tuple(made)
    return Geometry(params=segments, params_numel=at, buffers=segments, buffers_numel=at, locals=())


SIZES = st.lists(st.integers(0, 70), max_size=9)


@given(SIZES, st.data())
def test_spans_cover_each_active_value_and_only_padding_beside(
    sizes: list[int], data: st.DataObject
) -> None:
    shape = geometry(sizes)
    active = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    covered = np.zeros(shape.params_numel, int)
    for offset, length in active_spans(shape, active):
        assert length > 0
        covered[offset : offset + length] += 1
    assert covered.max(initial=0) <= 1
    owner = np.full(shape.params_numel, -1)
    for index, segment in enumerate(shape.params):
        owner[segment.offset : segment.offset + segment.numel] = index
    for place, times in enumerate(covered.tolist()):
        if owner[place] >= 0:
            assert times == int(active[owner[place]])


def test_a_model_without_frozen_parts_is_one_run() -> None:
    assert active_spans(geometry([5, 16, 0, 40]), [True] * 4) == (Run(0, 32 + 40),)
    assert buffer_spans(geometry([5, 16])) == (Run(0, 32),)


def test_a_frozen_segment_splits_the_run() -> None:
    spans = active_spans(geometry([5, 16, 40]), [True, False, True])
    assert spans == (Run(0, 5), Run(32, 40))


def test_an_empty_segment_is_in_nobodys_way() -> None:
    assert active_spans(geometry([16, 0, 16]), [True, False, True]) == (Run(0, 32),)
    assert active_spans(geometry([0]), [True]) == ()


@given(SIZES, st.integers(1, 64))
def test_buckets_are_the_spans_cut_in_order(sizes: list[int], capacity: int) -> None:
    spans = active_spans(geometry(sizes), [index % 3 != 1 for index in range(len(sizes))])
    buckets = cut_buckets(spans, 4 * capacity)
    flat = [place for offset, length in spans for place in range(offset, offset + length)]
    cut = [
        place
        for bucket in buckets
        for offset, length in bucket
        for place in range(offset, offset + length)
    ]
    assert cut == flat
    assert all(bucket_values(bucket) == capacity for bucket in buckets[:-1])
    assert all(0 < bucket_values(bucket) <= capacity for bucket in buckets)


@pytest.mark.parametrize("size", [0, -4, 6])
def test_a_bucket_size_that_holds_no_whole_values_is_refused(size: int) -> None:
    with pytest.raises(LocalProtocolError, match="multiple of 4"):
        cut_buckets((), size)


def test_frozen_parameters_take_part_in_cycle_0_and_once_any_rank_unfroze_them() -> None:
    shape = geometry([4, 4, 4], frozen=(1, 2))
    flags = np.array([0.0, 0.0, 2.0])
    assert active_segments(shape, Cycle(0), flags) == (True, True, True)
    assert active_segments(shape, Cycle(5), flags) == (True, False, True)


def test_flags_of_another_geometry_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="2 unfrozen flags"):
        active_segments(geometry([4]), Cycle(1), np.zeros(2))


@given(SIZES, st.data())
def test_spans_cover_a_region_if_every_segment_with_values_is_active(
    sizes: list[int], data: st.DataObject
) -> None:
    shape = geometry(sizes)
    active = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    is_whole = all(wanted or size == 0 for wanted, size in zip(active, sizes, strict=True))
    assert covers_region(active_spans(shape, active), shape.params_numel) is is_whole
