"""The books of samples: examples, and a model that names every sample."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flodl_core.dispatch.accounts import Coverage, SampleAccounts
from flodl_core.dispatch.ranges import Range
from flodl_core.errors import LocalProtocolError

RANKS = st.integers(0, 2)


def test_a_commit_takes_the_oldest_samples_across_ranges():
    accounts = SampleAccounts()
    accounts.assign(0, 3, Range(100, 8))
    accounts.assign(0, 3, Range(40, 8))
    assert accounts.commit(0, 4) == [(3, Range(100, 4))]
    assert accounts.commit(0, 8) == [(3, Range(104, 4)), (3, Range(40, 4))]
    assert accounts.outstanding(0) == ((3, Range(44, 4)),)


def test_a_commit_may_reach_into_the_next_epoch():
    accounts = SampleAccounts()
    accounts.assign(1, 0, Range(96, 4))
    accounts.assign(1, 1, Range(0, 8))
    assert accounts.commit(1, 8) == [(0, Range(96, 4)), (1, Range(0, 4))]
    assert accounts.attributed(1, 0) == 4
    assert accounts.attributed(1, 1) == 4


def test_dropped_samples_are_attributed_but_not_trained():
    accounts = SampleAccounts()
    accounts.assign(0, 0, Range(0, 12))
    accounts.commit(0, 4)
    assert accounts.drop(0, 4) == [(0, Range(4, 4))]
    assert accounts.attributed(0, 0) == 8
    assert accounts.trained_samples(0, 0) == 4
    assert accounts.coverage(0) == Coverage(
        trained=(Range(0, 4),), dropped=(Range(4, 4),), outstanding=(Range(8, 4),)
    )


def test_reclaiming_keeps_what_a_pending_cycle_still_decides():
    accounts = SampleAccounts()
    accounts.assign(0, 0, Range(0, 12))
    accounts.assign(0, 0, Range(20, 4))
    assert accounts.reclaim(0, keep_samples=4) == [(0, Range(4, 8)), (0, Range(20, 4))]
    assert accounts.outstanding(0) == ((0, Range(0, 4)),)
    assert accounts.commit(0, 4) == [(0, Range(0, 4))]
    assert accounts.reclaim(0) == []


def test_an_epoch_is_settled_when_all_its_samples_are_trained_or_dropped():
    accounts = SampleAccounts()
    accounts.assign(0, 0, Range(0, 4))
    accounts.assign(1, 0, Range(4, 4))
    accounts.commit(0, 4)
    assert not accounts.is_settled(0, 8)
    accounts.drop(1, 4)
    assert accounts.is_settled(0, 8)


def test_uncovered_is_what_is_neither_trained_nor_dropped():
    accounts = SampleAccounts()
    accounts.assign(0, 0, Range(0, 8))
    accounts.commit(0, 4)
    assert accounts.uncovered(0, Range(0, 20)) == (Range(4, 16),)


def test_an_epoch_that_is_over_can_be_forgotten():
    accounts = SampleAccounts()
    accounts.assign(0, 0, Range(0, 4))
    accounts.commit(0, 4)
    accounts.forget_epoch(0)
    assert accounts.attributed(0, 0) == 0
    assert accounts.coverage(0) == Coverage((), (), ())


@pytest.mark.parametrize("samples", [5, -1])
def test_settling_more_than_a_rank_holds_is_our_bug(samples):
    accounts = SampleAccounts()
    accounts.assign(2, 0, Range(0, 4))
    for settle in (accounts.commit, accounts.drop):
        with pytest.raises(LocalProtocolError, match=f"rank 2 was to settle {samples} .* holds 4"):
            settle(2, samples)
    with pytest.raises(LocalProtocolError):
        accounts.reclaim(2, keep_samples=samples)
    assert accounts.outstanding(2) == ((0, Range(0, 4)),)


def test_a_sample_in_two_accounts_or_outside_the_span_is_found():
    accounts = SampleAccounts()
    accounts.assign(0, 0, Range(0, 4))
    accounts.commit(0, 4)
    accounts.check(0, Range(0, 4))
    accounts.assign(1, 0, Range(3, 3))
    with pytest.raises(LocalProtocolError, match="1 samples are in two accounts and 2 lie outside"):
        accounts.check(0, Range(0, 4))


class AccountsMatchAListOfSamples(RuleBasedStateMachine):
    """Every sample by name: assigned from the front of one pass, settled or returned."""

    def __init__(self):
        super().__init__()
        self.accounts = SampleAccounts()
        self.held = {0: [], 1: [], 2: []}
        self.trained = {0: [], 1: [], 2: []}
        self.dropped = {0: [], 1: [], 2: []}
        self.free = []
        self.next_position = 0

    @rule(rank=RANKS, size=st.integers(0, 9))
    def assign_new(self, rank, size):
        self.accounts.assign(rank, 0, Range(self.next_position, size))
        self.held[rank] += range(self.next_position, self.next_position + size)
        self.next_position += size

    @rule(rank=RANKS)
    def assign_reclaimed(self, rank):
        for part in self.free:
            self.accounts.assign(rank, 0, part)
            self.held[rank] += range(part.offset, part.end)
        self.free = []

    @rule(rank=RANKS, share=st.floats(0, 1), dropped=st.booleans())
    def settle(self, rank, share, dropped):
        samples = round(share * len(self.held[rank]))
        settle = self.accounts.drop if dropped else self.accounts.commit
        entries = settle(rank, samples)
        named = [at for _, part in entries for at in range(part.offset, part.end)]
        assert named == self.held[rank][:samples]
        self.held[rank] = self.held[rank][samples:]
        (self.dropped if dropped else self.trained)[rank] += named

    @rule(rank=RANKS, share=st.floats(0, 1))
    def reclaim(self, rank, share):
        keep = round(share * len(self.held[rank]))
        entries = self.accounts.reclaim(rank, keep_samples=keep)
        named = [at for _, part in entries for at in range(part.offset, part.end)]
        assert named == self.held[rank][keep:]
        self.held[rank] = self.held[rank][:keep]
        self.free += [part for _, part in entries]

    @invariant()
    def every_number_agrees(self):
        for rank in (0, 1, 2):
            settled = self.trained[rank] + self.dropped[rank]
            assert self.accounts.attributed(rank, 0) == len(settled)
            assert self.accounts.trained_samples(rank, 0) == len(self.trained[rank])
            assert self.accounts.outstanding_samples(rank) == len(self.held[rank])
        self.accounts.check(0, Range(0, self.next_position))
        coverage = self.accounts.coverage(0)
        for parts, named in (
            (coverage.trained, self.trained),
            (coverage.dropped, self.dropped),
            (coverage.outstanding, self.held),
        ):
            listed = [at for part in parts for at in range(part.offset, part.end)]
            assert listed == sorted(at for owned in named.values() for at in owned)


AccountsMatchAListOfSamples.TestCase.settings = settings(
    max_examples=50, stateful_step_count=25, deadline=None
)
TestAccountsMatchAListOfSamples = pytest.mark.slow(AccountsMatchAListOfSamples.TestCase)
