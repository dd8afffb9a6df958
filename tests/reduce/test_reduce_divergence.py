"""The divergence triple against plain f64 norms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.errors import LocalProtocolError
from flodl_core.reduce.buckets import Run
from flodl_core.reduce.divergence import Divergence, adopt_and_compare, divergence_triple


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 100_000))
def test_it_is_the_relative_distance_over_the_spans(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    pre = random.standard_normal(size + 20).astype(np.float32)
    post = random.standard_normal(size + 20).astype(np.float32)
    pre[size : size + 10] = np.nan
    spans = (Run(0, size), Run(size + 10, 10))
    rows = np.r_[0:size, size + 10 : size + 20]
    a, b = pre[rows].astype(np.float64), post[rows].astype(np.float64)
    triple = divergence_triple(pre, post, spans)
    assert triple.pre_norm == pytest.approx(np.linalg.norm(a), rel=1e-5)
    assert triple.post_norm == pytest.approx(np.linalg.norm(b), rel=1e-5)
    expected = np.linalg.norm(a - b) / np.linalg.norm(b)
    assert triple.divergence == pytest.approx(expected, rel=1e-5)


def test_nothing_diverges_from_a_consensus_of_zero() -> None:
    triple = divergence_triple(np.ones(4, np.float32), np.zeros(4, np.float32), (Run(0, 4),))
    assert triple == Divergence(divergence=0.0, post_norm=0.0, pre_norm=2.0)


def test_no_values_give_zero_and_no_norms() -> None:
    empty = np.empty(0, np.float32)
    expected = Divergence(divergence=0.0, post_norm=None, pre_norm=None)
    assert divergence_triple(empty, empty, ()) == expected


def test_what_is_not_finite_is_absent() -> None:
    pre = np.array([np.nan, 1], np.float32)
    triple = divergence_triple(pre, np.array([3, 4], np.float32), (Run(0, 2),))
    assert triple == Divergence(divergence=None, post_norm=5.0, pre_norm=None)


def test_regions_of_different_length_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="expected as many"):
        divergence_triple(np.empty(1, np.float32), np.empty(2, np.float32), ())


def test_neither_array_is_changed_and_large_values_do_not_overflow() -> None:
    pre = np.full(3, 3e38, np.float32)
    post = np.full(3, -3e38, np.float32)
    triple = divergence_triple(pre, post, (Run(0, 3),))
    assert triple.divergence == pytest.approx(2.0)
    assert pre.tolist() == np.full(3, 3e38, np.float32).tolist()


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 100_000), st.booleans())
def test_adopting_compares_the_same_and_changes_the_spans_only(
    seed: int, size: int, knows_norm: bool
) -> None:
    random = np.random.default_rng(seed)
    pre = random.standard_normal(size + 20).astype(np.float32)
    post = random.standard_normal(size + 20).astype(np.float32)
    spans = (Run(0, size), Run(size + 10, 10))
    before = pre.copy()
    norm = float(np.linalg.norm(np.r_[pre[:size], pre[size + 10 :]].astype(np.float64)))
    expected = divergence_triple(pre, post, spans)
    found = adopt_and_compare(pre, post, spans, pre_norm=norm if knows_norm else None)
    assert found.divergence == expected.divergence
    assert found.post_norm == expected.post_norm
    assert found.pre_norm == pytest.approx(norm, rel=1e-5)
    np.testing.assert_array_equal(pre[:size], post[:size])
    np.testing.assert_array_equal(pre[size : size + 10], before[size : size + 10])
    np.testing.assert_array_equal(pre[size + 10 :], post[size + 10 :])


def test_a_small_step_of_large_values_keeps_its_digits() -> None:
    """A distance of 1e-6 of the norm: the difference is taken before it is squared."""
    pre = np.full(10_000, 1.0, np.float32)
    post = pre * np.float32(1 + 2.0**-20)
    triple = divergence_triple(pre, post, (Run(0, 10_000),))
    assert triple.divergence == pytest.approx(2.0**-20, rel=1e-5)
