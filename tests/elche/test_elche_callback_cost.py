"""Costs of callbacks and the batches that they are worth, by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.callback_cost import CallbackCosts, absorb_slack, worth_slack
from flodl_core.ids import Rank


def test_the_first_cost_is_taken_as_it_is_and_later_ones_by_three_tenths():
    costs = CallbackCosts()
    assert costs.cost_ms(Rank(0)) is None
    costs.push(Rank(0), 1000.0)
    assert costs.cost_ms(Rank(0)) == 1000.0
    costs.push(Rank(0), 2000.0)
    assert costs.cost_ms(Rank(0)) == pytest.approx(1300.0)


def test_a_rank_that_ran_none_is_expected_to_cost_what_the_last_one_did():
    costs = CallbackCosts()
    costs.push(Rank(0), 1000.0)
    costs.push(Rank(1), 50.0)
    assert costs.cost_ms(Rank(2)) == 50.0
    assert costs.cost_ms(Rank(0)) == 1000.0


@pytest.mark.parametrize("elapsed_ms", [math.nan, math.inf, -1.0])
def test_what_is_no_duration_is_ignored(elapsed_ms):
    costs = CallbackCosts()
    costs.push(Rank(0), elapsed_ms)
    assert costs.cost_ms(Rank(0)) is None


@pytest.mark.parametrize(
    ("cost_ms", "wall_ms", "worth"),
    [
        (100.0, 500.0, False),
        (100.1, 500.0, True),
        (150.0, 3000.0, False),
        (150.1, 3000.0, True),
        (5000.0, 200_000.0, False),
    ],
)
def test_only_what_is_felt_is_dealt_around(cost_ms, wall_ms, worth):
    assert worth_slack(cost_ms, wall_ms) is worth


def test_slack_takes_whole_batches_and_leaves_one():
    counts, ms = {0: 100, 1: 50, 2: 10}, {0: 5.0, 1: 10.0, 2: 50.0}
    assert absorb_slack(counts, {0: 101.0}, ms) == {0: 79, 1: 50, 2: 10}
    assert absorb_slack(counts, {2: 10_000.0}, ms) == {0: 100, 1: 50, 2: 1}
    assert absorb_slack(counts, {7: 100.0}, ms) == counts
    assert absorb_slack(counts, {0: 100.0}, {}) == counts


@given(
    st.dictionaries(st.integers(0, 5), st.integers(1, 500), max_size=6),
    st.dictionaries(st.integers(0, 5), st.floats(0, 5000), max_size=6),
    st.dictionaries(st.integers(0, 5), st.floats(0.1, 500), max_size=6),
)
def test_slack_never_adds_and_never_takes_the_last_batch(counts, slack, ms):
    left = absorb_slack(counts, slack, ms)
    assert left.keys() == counts.keys()
    for rank, count in left.items():
        assert 1 <= count <= counts[rank]
        if rank in slack and rank in ms and count > 1:
            # what is left fits beside the callback, as closely as whole batches allow
            gone_ms = (counts[rank] - count) * ms[rank]
            assert slack[rank] <= gone_ms * (1 + 1e-9) + 1e-9
            assert gone_ms < slack[rank] + ms[rank] * (1 + 1e-9)
