"""The elastic move, against double precision and its own definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flodl_core.errors import LocalProtocolError
from flodl_core.reduce.easgd import blend

VALUES = st.floats(-1e3, 1e3, width=32)
ALPHAS = st.floats(0.015625, 1.0, width=32)


def arrays(size):
    return hnp.arrays(np.float32, size, elements=VALUES)


def moved(own, snapshot, consensus, alpha, spans=None):
    result = own.copy()
    blend(result, snapshot, consensus, spans or [(0, own.size)], alpha=alpha)
    return result


@st.composite
def cases(draw):
    size = draw(st.integers(1, 40))
    return tuple(draw(arrays(size)) for _ in range(3))


@given(cases(), ALPHAS)
def test_it_is_the_snapshot_moved_by_alpha_plus_what_was_trained_since(case, alpha):
    own, snapshot, consensus = case
    p, s, c = (values.astype(np.float64) for values in case)
    exact = (1 - alpha) * s + alpha * c + (p - s)
    scale = np.abs(p) + 2 * np.abs(s) + np.abs(c)
    bound = 4 * 2.0**-24 * scale + 4 * 2.0**-149
    assert (np.abs(moved(own, snapshot, consensus, alpha) - exact) <= bound).all()


@given(cases(), ALPHAS)
def test_without_work_since_the_snapshot_it_is_the_elastic_average(case, alpha):
    own, _, consensus = case
    stay, move = np.float32(1 - alpha), np.float32(alpha)
    expected = move * consensus + stay * own
    assert moved(own, own.copy(), consensus, alpha).tobytes() == (expected + 0).tobytes()


@given(cases())
def test_with_alpha_one_a_rank_that_did_nothing_holds_the_very_consensus(case):
    own, _, consensus = case
    assert (moved(own, own.copy(), consensus, 1.0) == consensus).all()


def test_a_rank_that_is_where_the_consensus_is_keeps_what_it_trained_since():
    snapshot = np.array([1.0, 2.0], np.float32)
    own = snapshot + np.array([0.25, -0.5], np.float32)
    assert moved(own, snapshot, snapshot, 0.5).tolist() == [1.25, 1.5]


def test_half_way_by_hand():
    own, snapshot, consensus = (np.array([v], np.float32) for v in (5.0, 4.0, 8.0))
    assert moved(own, snapshot, consensus, 0.5).tolist() == [7.0]
    assert moved(own, snapshot, consensus, 0.25).tolist() == [6.0]


def test_what_took_no_part_is_untouched_whatever_it_holds():
    own = np.array([1.0, np.nan, 3.0, 4.0], np.float32)
    snapshot, consensus = np.zeros(4, np.float32), np.ones(4, np.float32)
    result = moved(own, snapshot, consensus, 1.0, [(2, 1)])
    assert result[[0, 2, 3]].tolist() == [1.0, 4.0, 4.0]
    assert np.isnan(result[1])


def test_pieces_of_a_long_region_meet_without_a_seam():
    size = 100_001
    rng = np.random.default_rng(3)
    own, snapshot, consensus = (rng.normal(size=size).astype(np.float32) for _ in range(3))
    whole = moved(own, snapshot, consensus, 0.5)
    one_by_one = moved(own, snapshot, consensus, 0.5, [(0, 17), (17, size - 17)])
    assert whole.tobytes() == one_by_one.tobytes()


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.01, float("nan")])
def test_an_alpha_that_moves_nowhere_or_too_far_is_refused(alpha):
    values = np.zeros(1, np.float32)
    with pytest.raises(LocalProtocolError, match="at most 1"):
        blend(values, values.copy(), values.copy(), [(0, 1)], alpha=alpha)


def test_regions_of_different_length_are_refused():
    values = np.zeros(2, np.float32)
    with pytest.raises(LocalProtocolError, match="as many"):
        blend(values, values.copy(), np.zeros(1, np.float32), [(0, 1)], alpha=0.5)
