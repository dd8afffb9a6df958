"""Norms against plain f64, at every size of value that f32 holds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.reduce.norms import NORM_ERROR, STRETCH_VALUES, norm, sum_of_squares

SCALES = [1e-38, 1e-24, 1e-20, 1e-12, 1.0, 1e10, 1e19, 1e30, 3e37]


def exact(values: np.ndarray) -> float:
    return float(np.linalg.norm(values.astype(np.float64)))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 3 * STRETCH_VALUES + 5),
    st.lists(st.sampled_from(SCALES), min_size=1, max_size=3),
)
def test_a_norm_is_within_its_error_whatever_the_sizes(
    seed: int, size: int, scales: list[float]
) -> None:
    random = np.random.default_rng(seed)
    values = random.standard_normal(size) * random.choice(scales, size)
    values = np.clip(values, -3e38, 3e38).astype(np.float32)
    assert norm(values) == pytest.approx(exact(values), rel=NORM_ERROR, abs=0.0)


@pytest.mark.parametrize("at", [0, STRETCH_VALUES - 1, STRETCH_VALUES, 2 * STRETCH_VALUES])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_makes_it_not_finite(bad: float, at: int) -> None:
    values = np.ones(2 * STRETCH_VALUES + 1, np.float32)
    values[at] = bad
    assert not math.isfinite(norm(values))


def test_finite_values_have_a_finite_norm_above_the_range_of_f32() -> None:
    values = np.full(STRETCH_VALUES + 1, 3e38, np.float32)
    assert norm(values) == pytest.approx(3e38 * math.sqrt(STRETCH_VALUES + 1), rel=1e-6)


def test_small_whole_numbers_are_exact() -> None:
    assert norm(np.array([3, 4], np.float32)) == 5.0
    assert sum_of_squares(np.zeros(10, np.float32)) == 0.0
    assert norm(np.empty(0, np.float32)) == 0.0
