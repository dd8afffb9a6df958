"""When a window grows, how far, and what stops it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.growth import CostRing, GrowthLatch, nudged_anchor, propose_growth
from flodl_core.elche.settings import ElcheSettings


def propose(anchor: int, overhead: float, *, margin: float = 1.0, **settings) -> int | None:
    proposal = propose_growth(anchor, overhead, margin=margin, settings=ElcheSettings(**settings))
    return proposal.anchor if proposal else None


def costs(*costs_ms: float) -> CostRing:
    ring = CostRing()
    for cost in costs_ms:
        ring.push(cost)
    return ring


def test_overhead_is_the_cost_over_the_window_and_the_cost():
    assert costs(25).overhead(10, 10.0) == pytest.approx(0.2)  # 25 / 125


def test_overhead_is_the_median_of_the_last_three():
    assert costs(25, 5000, 25).overhead(10, 10.0) == pytest.approx(0.2)
    assert costs(1, 1, 25, 5000, 25).overhead(10, 10.0) == pytest.approx(0.2)
    assert costs(5000, 25).overhead(10, 10.0) == pytest.approx(0.2)


def test_a_window_that_grew_is_judged_at_its_new_length():
    ring = costs(25, 25, 25)
    assert ring.overhead(20, 10.0) == pytest.approx(1 / 9)  # 25 / 225


def test_no_cost_or_no_speed_is_no_overhead():
    assert costs().overhead(10, 10.0) is None
    assert costs(25).overhead(10, None) is None
    assert costs(math.nan, math.inf).overhead(10, 10.0) is None
    assert costs(-5).overhead(10, 10.0) == 0
    assert costs(0).overhead(10, 0.0) == 0


@pytest.mark.parametrize(
    ("anchor", "overhead", "grown"),
    [
        (10, 0.05, None),  # at the target
        (10, 0.06, 12),
        (10, 0.061, 13),  # 12.2
        (10, 0.08, 16),
        (10, 0.10, 20),
        (10, 0.90, 20),  # at most twofold
        (990, 0.09, 1000),
        (1000, 0.90, None),
    ],
)
def test_growth_is_as_worked_out_by_hand(anchor, overhead, grown):
    assert propose(anchor, overhead) == grown


def test_while_warming_up_overhead_must_be_above_twice_the_target():
    assert propose(10, 0.10, margin=2.0) is None
    assert propose(10, 0.11, margin=2.0) == 20


def test_below_its_bound_after_a_nudge_the_anchor_comes_back_at_most_twofold():
    assert propose(2, 0.06) == 4
    assert propose(7, 0.06) == 10  # 8.4 is below the bound of 10
    assert propose(1, 0.9) == 2


@pytest.mark.slow
@given(
    st.integers(1, 1000),
    st.floats(0, 1),
    st.sampled_from([1.0, 2.0]),
    st.integers(1, 50),
    st.floats(0.01, 0.5),
)
def test_proposals_only_grow_at_most_twofold_and_within_bounds(
    anchor, overhead, margin, initial, target
):
    grown = propose(anchor, overhead, margin=margin, initial_anchor=initial, overhead_target=target)
    if overhead <= target:
        assert grown is None
    if grown is not None:
        assert anchor < grown <= min(2 * anchor, 1000)
        assert grown >= min(initial, 2 * anchor)


@pytest.mark.parametrize(
    ("anchor", "factor", "nudged"),
    [
        (10, 0.5, 5),
        (11, 0.5, 6),
        (10, 0.0, 1),  # 0.1 at least
        (100, -3, 10),
        (1, 0.1, 1),
        (10, 1.0, 10),
        (10, 7.0, 10),  # never larger
        (10, math.nan, 10),
        (10, math.inf, 10),
        (10, -math.inf, 10),
    ],
)
def test_nudges_are_as_worked_out_by_hand(anchor, factor, nudged):
    assert nudged_anchor(anchor, factor) == nudged


@given(st.integers(1, 2000), st.floats(allow_nan=True, allow_infinity=True))
def test_a_nudge_never_grows_and_leaves_a_batch(anchor, factor):
    assert 1 <= nudged_anchor(anchor, factor) <= anchor


def test_five_stable_verdicts_in_a_row_open_the_latch():
    latch = GrowthLatch()
    assert (latch.shut_because, latch.stable_to_go) == (None, 0)
    latch.stable()
    latch.shut("why")
    for left in (4, 3, 2):
        latch.stable()
        assert (latch.shut_because, latch.stable_to_go) == ("why", left)
    latch.shut("again")
    for _ in range(4):
        latch.stable()
    assert latch.shut_because == "again"
    latch.stable()
    assert latch.shut_because is None
