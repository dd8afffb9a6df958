"""The chunk pool: each rule by example, and a model that names every sample."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from flodl_core.dispatch.chunk_pool import ChunkPool, span_batches
from flodl_core.dispatch.ranges import Range, merge_ranges, take_samples, total_size
from flodl_core.errors import LocalProtocolError

RANKS = st.integers(0, 2)


def two_spans():
    return ChunkPool([Range(0, 20), Range(20, 40)])


def test_a_rank_takes_from_the_front_of_its_own_span():
    pool = two_spans()
    assert pool.take(1, 8) == Range(20, 8)
    assert pool.take(0, 8) == Range(0, 8)
    assert pool.residue(1) == Range(28, 32)
    assert pool.remaining_samples == 44


def test_a_take_is_short_rather_than_joined():
    pool = two_spans()
    pool.take(0, 16)
    assert pool.take(0, 8) == Range(16, 4)


def test_who_runs_out_steals_the_tail_of_the_longest_span():
    pool = ChunkPool([Range(0, 4), Range(4, 10), Range(14, 30)])
    pool.take(0, 4)
    assert pool.take(0, 8) == Range(36, 8)
    assert pool.residue(2) == Range(14, 22)


def test_among_equally_long_spans_the_last_is_stolen_from():
    pool = ChunkPool([Range(0, 0), Range(0, 8), Range(8, 8)])
    assert pool.take(0, 2) == Range(14, 2)
    assert pool.take(0, 2) == Range(6, 2)


def test_taking_nothing_gives_the_empty_range_at_the_cursor():
    pool = two_spans()
    pool.take(1, 8)
    assert pool.take(1, 0) == Range(28, 0)
    assert pool.dispatched_samples == 8


def test_a_drained_pool_gives_empty_ranges():
    pool = ChunkPool([Range(0, 4), Range(4, 0)])
    pool.take(0, 4)
    assert pool.take(1, 4) == Range(4, 0)
    assert pool.outstanding(1) == ()


def test_reclaimed_ranges_go_first_and_their_tail_goes_back_to_the_front():
    pool = two_spans()
    pool.take(0, 8)
    pool.take(0, 4)
    assert pool.forfeit(0) == [Range(0, 8), Range(8, 4)]
    assert pool.take(1, 6) == Range(0, 6)
    assert pool.take(1, 6) == Range(6, 2)
    assert pool.take(1, 6) == Range(8, 4)
    assert pool.take(1, 6) == Range(20, 6)


def test_rolling_back_the_newest_take_rewinds_the_cursor():
    pool = two_spans()
    pool.take(0, 8)
    newest = pool.take(0, 4)
    assert pool.rollback(0, newest)
    assert pool.residue(0) == Range(8, 12)
    assert pool.dispatched_samples == 8


def test_rolling_back_a_stolen_tail_makes_it_reclaimed():
    pool = ChunkPool([Range(0, 0), Range(0, 20)])
    stolen = pool.take(0, 4)
    assert pool.rollback(0, stolen)
    assert pool.residue(1) == Range(0, 16)
    assert pool.take(1, 9) == stolen


def test_rolling_back_an_unknown_or_older_take_does_nothing():
    pool = two_spans()
    older = pool.take(0, 4)
    pool.take(0, 4)
    assert not pool.rollback(0, older)
    assert not pool.rollback(1, Range(20, 4))
    assert pool.outstanding(0) == (Range(0, 4), Range(4, 4))


def test_completing_more_than_is_held_completes_all_that_is_held():
    pool = two_spans()
    pool.take(0, 6)
    assert pool.complete(0, 4) == [Range(0, 4)]
    assert pool.complete(0, 100) == [Range(4, 2)]
    assert pool.completed_samples == 6 == pool.dispatched_samples


def test_forfeiting_returns_only_what_is_not_completed():
    pool = two_spans()
    pool.take(0, 8)
    pool.complete(0, 3)
    assert pool.forfeit(0) == [Range(3, 5)]
    assert pool.dispatched_samples == 3


def test_uncovered_is_residue_reclaimed_and_outstanding_merged():
    pool = two_spans()
    pool.take(0, 8)
    pool.take(1, 8)
    pool.complete(0, 8)
    pool.forfeit(1)
    pool.take(0, 4)
    assert pool.uncovered() == (Range(8, 52),)


def test_a_pool_from_a_coverage_serves_only_its_holes():
    pool = ChunkPool.from_holes([Range(40, 6), Range(8, 4), Range(12, 2)], 2)
    assert [pool.take(1, 4) for _ in range(5)] == [
        Range(8, 4),
        Range(12, 2),
        Range(40, 4),
        Range(44, 2),
        Range(0, 0),
    ]
    pool.complete(1, 12)
    assert pool.is_done


def test_a_pool_is_done_when_all_that_exists_is_completed():
    pool = ChunkPool([Range(0, 8)])
    assert not pool.is_done
    pool.take(0, 8)
    assert not pool.is_done
    pool.complete(0, 8)
    assert pool.is_done


def test_what_is_given_back_is_handed_out_first_and_in_its_order():
    pool = two_spans()
    pool.take(0, 8)
    pool.take(0, 8)
    pool.take(1, 8)
    assert pool.give_back(0, keep_samples=4) == [Range(4, 4), Range(8, 8)]
    assert pool.give_back(1) == [Range(20, 8)]
    assert pool.outstanding(0) == (Range(0, 4),)
    assert [pool.take(1, 100) for _ in range(3)] == [Range(20, 8), Range(4, 4), Range(8, 8)]
    pool.check()


def test_a_bare_pool_gives_the_last_span_the_remainder():
    pool = ChunkPool.bare(Range(5, 11), 3)
    assert [pool.residue(rank) for rank in range(3)] == [Range(5, 3), Range(8, 3), Range(11, 5)]


def test_spans_follow_the_counts_in_whole_batches():
    pool = ChunkPool.from_counts(Range(0, 47), 4, [3, 1, 1])
    assert [pool.residue(rank).size for rank in range(3)] == [28, 8, 8]
    assert pool.total_samples == 44


def test_batches_left_over_go_round_robin_from_rank_zero_past_ranks_without_a_count():
    assert span_batches(11, [1, 0, 1, 1]) == (4, 0, 4, 3)


@given(st.integers(0, 300), st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any))
def test_reserved_batches_sum_up_and_stay_within_one_of_the_share(batches, counts):
    shares = span_batches(batches, counts)
    assert sum(shares) == batches
    for share, count in zip(shares, counts, strict=True):
        assert abs(share * sum(counts) - batches * count) <= sum(counts)


@pytest.mark.parametrize("counts", [[], [0, 0], [2, -1]])
def test_useless_counts_are_refused(counts):
    with pytest.raises(LocalProtocolError):
        span_batches(4, counts)


@pytest.mark.parametrize("spans", [[], [Range(0, 4), Range(3, 4)]])
def test_a_pool_needs_disjoint_spans(spans):
    with pytest.raises(LocalProtocolError, match="disjoint"):
        ChunkPool(spans)


def test_a_rank_outside_the_pool_is_our_bug():
    with pytest.raises(LocalProtocolError, match="rank 2 in a pool of 2"):
        two_spans().take(2, 1)


class EverySampleIsHandedOutOnce(RuleBasedStateMachine):
    """Random takes, rollbacks, completions and forfeits, by name of sample."""

    @initialize(sizes=st.lists(st.integers(0, 20), min_size=3, max_size=3), holes=st.booleans())
    def build(self, sizes, holes):
        spans = []
        for size in sizes:
            spans.append(Range(spans[-1].end if spans else 0, size))
        self.pool = ChunkPool.from_holes(spans, 3) if holes else ChunkPool(spans)
        self.everything = set(range(sum(sizes)))
        self.held = {0: [], 1: [], 2: []}
        self.completed = []

    @rule(rank=RANKS, samples=st.integers(0, 12))
    def take(self, rank, samples):
        before = self.pool.remaining_samples
        part = self.pool.take(rank, samples)
        assert part.size <= samples
        assert part.size or not samples or not before
        if part.size:
            self.held[rank].append(part)

    @rule(rank=RANKS)
    def roll_back_the_newest(self, rank):
        newest = self.held[rank].pop() if self.held[rank] else Range(0, 3)
        known = bool(newest in self.pool.outstanding(rank))
        assert self.pool.rollback(rank, newest) == known

    @rule(rank=RANKS, samples=st.integers(0, 15))
    def complete(self, rank, samples):
        finished = self.pool.complete(rank, samples)
        assert total_size(finished) == min(samples, total_size(self.held[rank]))
        self.completed += [at for part in finished for at in range(part.offset, part.end)]
        self.held[rank] = list(self.pool.outstanding(rank))

    @rule(rank=RANKS)
    def forfeit(self, rank):
        assert self.pool.forfeit(rank) == self.held[rank]
        self.held[rank] = []

    @rule(rank=RANKS, keep=st.integers(0, 15))
    def give_back(self, rank, keep):
        held = self.held[rank]
        kept, returned = take_samples(held, keep)
        assert self.pool.give_back(rank, keep_samples=keep) == returned
        self.held[rank] = list(self.pool.outstanding(rank))
        assert self.held[rank] == kept

    @invariant()
    def every_sample_is_in_one_place(self):
        self.pool.check()
        assert len(set(self.completed)) == len(self.completed)
        uncovered = self.everything - set(self.completed)
        assert self.pool.uncovered() == merge_ranges(Range(at, 1) for at in uncovered)
        held = sum(total_size(parts) for parts in self.held.values())
        assert self.pool.dispatched_samples == held + len(self.completed)
        assert self.pool.is_done == (not uncovered)

    def teardown(self):
        """Whatever happened, the rest can be taken and completed."""
        if not hasattr(self, "pool"):
            return
        while self.pool.take(1, 7).size:
            pass
        for rank in range(3):
            self.pool.complete(rank, 1000)
        assert self.pool.is_done
        assert self.pool.completed_samples == len(self.everything)


EverySampleIsHandedOutOnce.TestCase.settings = settings(
    max_examples=50, stateful_step_count=25, deadline=None
)
TestEverySampleIsHandedOutOnce = pytest.mark.slow(EverySampleIsHandedOutOnce.TestCase)


def test_a_pool_that_lost_a_sample_is_found():
    pool = two_spans()
    pool.total_samples += 1
    with pytest.raises(LocalProtocolError, match="61 samples accounts for 60"):
        pool.check()
