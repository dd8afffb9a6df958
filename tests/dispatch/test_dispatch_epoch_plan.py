"""How passes and events are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.dispatch.epoch_plan import (
    lay_out,
    plan_sync,
    refuse_splits,
    share_by_ratio,
    share_equally,
    share_out,
    span_event,
    split_span,
    window_cap_batches,
)
from flodl_core.dispatch.ranges import Range, merge_ranges, total_size
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Rank

SIZES = st.tuples(st.integers(1, 2000), st.integers(1, 50), st.integers(1, 20))


@given(st.integers(1, 500), st.integers(1, 30))
def test_the_splits_of_a_pass_cover_it_once_and_differ_by_at_most_one(n_samples, splits):
    spans = [split_span(n_samples, splits, split) for split in range(splits)]
    assert [at for span in spans for at in range(span.offset, span.end)] == list(range(n_samples))
    sizes = [span.size for span in spans]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_splits_are_cut_as_worked_out_by_hand():
    assert [split_span(10, 4, split) for split in range(4)] == [
        Range(0, 3),
        Range(3, 3),
        Range(6, 2),
        Range(8, 2),
    ]


def test_an_event_names_its_pass_its_split_and_its_tail():
    span = span_event(3, 103, splits=4, batch_size=8)
    assert (span.pass_index, span.split) == (0, 3)
    assert (span.whole, span.tail) == (Range(78, 24), Range(102, 1))
    assert span.label == "4 (pass 1, split 4/4)"
    assert span_event(4, 103, splits=4, batch_size=8).pass_index == 1


def test_an_event_without_splits_is_labelled_by_its_number():
    assert span_event(2, 100, splits=1, batch_size=10).label == "3"


@given(SIZES, st.integers(0, 40))
def test_whole_batches_and_tail_make_up_the_split(sizes, event):
    n_samples, batch_size, splits = sizes
    if refuse_splits(n_samples, batch_size, splits) is not None:
        with pytest.raises(LocalProtocolError):
            span_event(event, n_samples, splits=splits, batch_size=batch_size)
        return
    span = span_event(event, n_samples, splits=splits, batch_size=batch_size)
    assert span.event == span.pass_index * splits + span.split
    assert span.whole.size > 0
    assert span.whole.size % batch_size == 0
    assert span.tail.size < batch_size
    parts = [part for part in (span.whole, span.tail) if part.size]
    assert merge_ranges(parts) == (split_span(n_samples, splits, span.split),)
    assert span.whole.size // batch_size >= window_cap_batches(n_samples, splits, batch_size)


@given(SIZES)
def test_splits_are_refused_exactly_when_the_smallest_holds_no_batch(sizes):
    n_samples, batch_size, splits = sizes
    smallest = min(split_span(n_samples, splits, split).size for split in range(splits))
    assert (refuse_splits(n_samples, batch_size, splits) is not None) == (smallest < batch_size)


def test_a_refusal_names_the_largest_number_of_splits():
    reason = refuse_splits(100, 30, 4)
    assert reason is not None
    assert "at most 3 splits" in reason
    assert refuse_splits(100, 30, 3) is None


def test_fewer_samples_than_a_batch_are_refused_with_a_way_out():
    reason = refuse_splits(7, 8, 1)
    assert reason is not None
    assert "7 samples are less than one batch of 8" in reason
    assert "smaller batch_size" in reason


@pytest.mark.parametrize("splits", [0, -2])
def test_no_splits_are_refused(splits):
    assert f"into {splits} splits" in (refuse_splits(100, 10, splits) or "")


def test_a_negative_event_is_our_bug():
    with pytest.raises(LocalProtocolError, match="event -1"):
        span_event(-1, 100, splits=1, batch_size=10)


@pytest.mark.parametrize(
    ("n_samples", "splits", "batch", "cap"), [(100, 1, 8, 12), (103, 4, 8, 3), (7, 2, 4, 0)]
)
def test_the_window_cap_is_the_batches_of_the_smallest_split(n_samples, splits, batch, cap):
    assert window_cap_batches(n_samples, splits, batch) == cap


@given(st.integers(0, 200), st.integers(1, 12))
def test_equal_shares_give_the_remainder_to_the_first(batches, shares):
    given_out = share_equally(batches, shares)
    assert sum(given_out) == batches
    assert list(given_out) == sorted(given_out, reverse=True)
    assert max(given_out) - min(given_out) <= 1


@given(
    st.integers(0, 500),
    st.lists(st.floats(0, 1e6), min_size=1, max_size=8).filter(lambda r: sum(r) > 0),
)
def test_shares_by_ratio_sum_up_and_only_the_largest_gains(batches, ratios):
    shares = share_by_ratio(batches, ratios)
    assert sum(shares) == batches
    largest = ratios.index(max(ratios))
    for index, (share, ratio) in enumerate(zip(shares, ratios, strict=True)):
        exact = batches * ratio / sum(ratios)
        assert share <= exact + 1e-6 or index == largest
        assert share >= exact - 1 - 1e-6


def test_shares_by_ratio_floor_and_give_the_rest_to_the_fastest():
    assert share_by_ratio(10, [1.0, 2.0, 1.0]) == (2, 6, 2)
    assert share_by_ratio(5, [1.0, 1.0]) == (3, 2)


@pytest.mark.parametrize(
    "ratios", [[], [0.0, 0.0], [1.0, -1.0], [float("inf"), 1.0], [float("nan")]]
)
def test_useless_ratios_are_refused(ratios):
    with pytest.raises(LocalProtocolError, match="finite numbers"):
        share_by_ratio(4, ratios)


def test_laying_out_more_than_fits_is_our_bug():
    with pytest.raises(LocalProtocolError, match="3 batches of 4 do not fit into 11"):
        lay_out(Range(0, 11), [1, 2], 4)


def test_sync_plans_are_equal_contiguous_and_hold_after_one_batch():
    span = span_event(1, 50, splits=2, batch_size=4)
    plans = plan_sync(span, [0, 2, 5], 4)
    assert {rank: (plan.offset, plan.size) for rank, plan in plans.items()} == {
        0: (25, 8),
        2: (33, 8),
        5: (41, 8),
    }
    assert {(p.epoch, p.window_batches, p.cohort_batches) for p in plans.values()} == {(1, 1, 3)}


def test_with_more_ranks_than_batches_the_last_ones_idle():
    plans = plan_sync(span_event(0, 9, splits=1, batch_size=4), [0, 1, 2, 3], 4)
    assert [plan.size for plan in plans.values()] == [4, 4, 0, 0]


@given(SIZES, st.sets(st.integers(0, 9), min_size=1))
def test_sync_plans_cover_the_whole_batches_once(sizes, ranks):
    n_samples, batch_size, _ = sizes
    if n_samples < batch_size:
        return
    span = span_event(0, n_samples, splits=1, batch_size=batch_size)
    plans = plan_sync(span, sorted(ranks), batch_size)
    parts = [Range(plan.offset, plan.size) for plan in plans.values() if plan.size]
    assert merge_ranges(parts) == (span.whole,)
    assert total_size(parts) == span.whole.size
    assert all(part.size % batch_size == 0 for part in parts)


def test_sync_plans_need_a_rank():
    with pytest.raises(LocalProtocolError, match="no alive rank"):
        plan_sync(span_event(0, 9, splits=1, batch_size=4), [], 4)


def test_what_a_lost_rank_held_is_shared_in_whole_batches_first_ones_first():
    given_out = share_out([Range(8, 8), Range(40, 12)], [1, 3, 4], 4)
    assert given_out == [
        (1, Range(8, 8)),
        (3, Range(40, 8)),
        (4, Range(48, 4)),
    ]


def test_survivors_beyond_the_batches_get_nothing():
    assert share_out([Range(0, 4)], [0, 1], 4) == [(0, Range(0, 4))]
    assert share_out([], [0, 1], 4) == []


@given(
    st.lists(st.integers(1, 30), max_size=6),
    st.integers(1, 8),
    st.sets(st.integers(0, 6), min_size=1),
)
def test_sharing_out_gives_every_sample_to_one_survivor(sizes, batch_size, survivors):
    parts = [Range(100 * index, size) for index, size in enumerate(sizes)]
    shared = share_out(parts, sorted(survivors), batch_size)
    assert merge_ranges(part for _, part in shared) == merge_ranges(parts)
    assert total_size(part for _, part in shared) == total_size(parts)
    batches = dict.fromkeys(sorted(survivors), 0)
    for rank, part in shared:
        batches[rank] += -(-part.size // batch_size)
    counts = list(batches.values())
    assert max(counts) - min(counts) <= 1
    assert counts == sorted(counts, reverse=True)


def test_sharing_out_needs_a_survivor():
    with pytest.raises(LocalProtocolError, match="no survivor"):
        share_out([Range(0, 4)], [], 4)


def test_parts_of_a_sync_event_may_be_unequal_and_are_those_of_who_is_there():
    span = span_event(0, 21, splits=1, batch_size=2)
    plans = plan_sync(span, [Rank(0), Rank(2)], 2, ratios=(3.0, 5.0, 1.0))
    # 10 batches, 7.5 and 2.5: floors, and the one that is left to the larger part
    assert [(plan.offset, plan.size) for plan in plans.values()] == [(0, 16), (16, 4)]
    assert {plan.cohort_batches for plan in plans.values()} == {2}
