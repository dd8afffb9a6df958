"""Outer optimizers against formulas written down again in double precision."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.errors import LocalProtocolError
from flodl_core.ids import OuterKind
from flodl_core.reduce.outer import (
    STEP_VALUES,
    NesterovMomentum,
    OuterAvg,
    OuterMomentum,
    OuterStep,
    SlowMomentum,
    all_finite,
    outer_rule,
)

HALF_UNIT = 2.0**-24
"""Relative error of one rounding to f32."""

rules = st.one_of(
    st.builds(
        SlowMomentum,
        lr=st.floats(0.01, 2.0),
        momentum=st.one_of(st.just(0.0), st.floats(0.0, 0.99)),
    ),
    st.builds(
        NesterovMomentum,
        lr=st.floats(0.01, 2.0),
        momentum=st.one_of(st.just(0.0), st.floats(0.0, 0.99)),
    ),
)
values = st.floats(-1e3, 1e3, width=32)


@dataclass
class ByHand:
    """The rules as the papers write them, in f64, with the bound of the f32 error.

    g_t = x_t − mean_t;  v_t = μ v_(t−1) + g_t;
    SlowMo: x_(t+1) = x_t − lr v_t;  DiLoCo: x_(t+1) = x_t − lr (μ v_t + g_t).
    """

    rule: OuterMomentum
    x: np.ndarray
    v: np.ndarray = field(init=False)
    error: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.v = np.zeros_like(self.x)
        self.error = np.zeros_like(self.x)
        self.v_error = np.zeros_like(self.x)

    def take(self, mean: np.ndarray) -> None:
        mu, lr = self.rule.momentum, self.rule.lr
        g = self.x - mean
        size = np.abs(self.x) + np.abs(mean)
        g_error = self.error + HALF_UNIT * size
        v = mu * self.v + g
        self.v_error = mu * self.v_error + g_error + 4 * HALF_UNIT * (mu * np.abs(self.v) + size)
        down, down_error = v, self.v_error
        if isinstance(self.rule, NesterovMomentum):
            down = mu * v + g
            down_error = mu * self.v_error + g_error
        x = self.x - lr * down
        room = np.abs(self.x) + lr * (np.abs(down) + mu * np.abs(v) + size) + np.abs(x)
        self.error = self.error + lr * down_error + 6 * HALF_UNIT * room + 1e-40
        self.x, self.v = x, v


@given(rules, st.lists(st.lists(values, min_size=3, max_size=3), min_size=2, max_size=8))
def test_a_run_of_averages_ends_where_the_papers_formulas_end(
    rule: OuterMomentum, rows: list[list[float]]
) -> None:
    start, *means = np.array(rows, np.float32)
    hand = ByHand(rule, start.astype(np.float64))
    step = OuterStep(rule)
    x, v = start.copy(), np.zeros(3, np.float32)
    for mean in means:
        out, after = mean.copy(), np.full(3, np.nan, np.float32)
        assert step.step(out, previous=x, before=v, after=after)
        hand.take(mean.astype(np.float64))
        x, v = out, after
        assert (np.abs(x - hand.x) <= hand.error).all()
        assert (np.abs(v - hand.v) <= hand.v_error + 1e-40).all()


@given(rules, st.lists(st.lists(values, min_size=2, max_size=2), min_size=3, max_size=3))
def test_differences_are_stepped_as_the_values_that_they_stand_for(
    rule: OuterMomentum, rows: list[list[float]]
) -> None:
    previous, mean, before = np.array(rows, np.float32)
    step = OuterStep(rule)
    whole, difference = mean.copy(), mean - previous
    after, after_too = np.empty(2, np.float32), np.empty(2, np.float32)
    assert step.step(whole, previous=previous, before=before, after=after)
    assert step.step_difference(difference, before=before, after=after_too)
    assert np.array_equal(after, after_too)
    room = HALF_UNIT * (np.abs(previous) + np.abs(whole))
    assert (np.abs(previous + difference.astype(np.float64) - whole) <= room + 1e-40).all()


def test_the_first_step_of_diloco_by_hand() -> None:
    """prev 1, mean 0.5: g = 0.5, v = 0.5, new = 1 − 0.5·(0.5·0.5 + 0.5) = 0.625."""
    step = OuterStep(NesterovMomentum(lr=0.5, momentum=0.5))
    out, after = np.array([0.5], np.float32), np.empty(1, np.float32)
    before = np.zeros(1, np.float32)
    assert step.step(out, previous=np.ones(1, np.float32), before=before, after=after)
    assert (out[0], after[0], before[0]) == (0.625, 0.5, 0.0)


def test_two_steps_of_slowmo_by_hand() -> None:
    """From 1 with means 0.5 and 0: v = 0.5 and x = 0.5; then v = 0.75 and x = −0.25."""
    step = OuterStep(SlowMomentum(lr=1.0, momentum=0.5))
    x, v = np.ones(1, np.float32), np.zeros(1, np.float32)
    seen = []
    for mean in (0.5, 0.0):
        out, after = np.array([mean], np.float32), np.empty(1, np.float32)
        assert step.step(out, previous=x, before=v, after=after)
        x, v = out, after
        seen.append((float(x[0]), float(v[0])))
    assert seen == [(0.5, 0.5), (-0.25, 0.75)]


@given(st.lists(st.tuples(values, values), min_size=1, max_size=5))
def test_without_momentum_and_with_rate_one_a_step_is_the_average(
    pairs: list[tuple[float, float]],
) -> None:
    previous, mean = (np.array(row, np.float32) for row in zip(*pairs, strict=True))
    for rule in (SlowMomentum(lr=1, momentum=0), NesterovMomentum(lr=1, momentum=0)):
        out, after = mean.copy(), np.empty_like(mean)
        zeros = np.zeros_like(mean)
        assert OuterStep(rule).step(out, previous=previous, before=zeros, after=after)
        size = np.abs(previous.astype(float)) + np.abs(mean)
        assert (np.abs(out.astype(float) - mean) <= 2.01 * HALF_UNIT * size).all()


def test_a_bucket_of_many_pieces_is_stepped_value_by_value() -> None:
    size = 2 * STEP_VALUES + 7
    rng = np.random.default_rng(3)
    previous, mean, before = rng.normal(size=(3, size)).astype(np.float32)
    step = OuterStep(NesterovMomentum())
    out, after = mean.copy(), np.empty(size, np.float32)
    assert step.step(out, previous=previous, before=before, after=after)
    for index in (0, STEP_VALUES - 1, STEP_VALUES, size - 1):
        one, one_after = mean[index : index + 1].copy(), np.empty(1, np.float32)
        place = slice(index, index + 1)
        step.step(one, previous=previous[place], before=before[place], after=one_after)
        assert (one[0], one_after[0]) == (out[index], after[index])


@pytest.mark.parametrize("place", [0, STEP_VALUES + 5])
@pytest.mark.parametrize("rule", [SlowMomentum(lr=2.0), NesterovMomentum(lr=2.0)])
def test_a_step_that_leaves_f32_says_so_wherever_it_does(rule: OuterMomentum, place: int) -> None:
    size = STEP_VALUES + 8
    previous, mean, before = (np.zeros(size, np.float32) for _ in range(3))
    previous[place], mean[place] = 3e38, -3e38
    after = np.empty(size, np.float32)
    step = OuterStep(rule)
    assert not step.step(mean.copy(), previous=previous, before=before, after=after)
    before[place] = -3e38
    assert not step.step_difference(-previous, before=-before, after=after)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 50, 99])
def test_one_value_that_is_not_finite_is_found_among_others(place: int, wrong: float) -> None:
    values = np.linspace(-3e38, 3e38, 100, dtype=np.float32)
    assert all_finite(values)
    values[place] = wrong
    assert not all_finite(values)
    assert all_finite(values[:0])


def test_large_values_whose_sum_overflows_are_finite_all_the_same() -> None:
    previous = np.full(64, 3e38, np.float32)
    out, after = previous.copy(), np.empty(64, np.float32)
    zeros = np.zeros(64, np.float32)
    assert OuterStep(SlowMomentum()).step(out, previous=previous, before=zeros, after=after)
    assert (out == previous).all()


def test_arrays_of_different_lengths_are_refused() -> None:
    step = OuterStep(SlowMomentum())
    short, long = np.zeros(2, np.float32), np.zeros(3, np.float32)
    with pytest.raises(LocalProtocolError, match=r"arrays of \[2, 3\] values"):
        step.step(long, previous=long.copy(), before=short, after=long.copy())


def test_a_rule_by_name_takes_the_typical_numbers_where_none_are_given() -> None:
    assert outer_rule(OuterKind.AVG, lr=None, momentum=None) == OuterAvg()
    assert outer_rule(OuterKind.SLOWMO, lr=None, momentum=None) == SlowMomentum(
        lr=1.0, momentum=0.9
    )
    assert outer_rule(OuterKind.NESTEROV, lr=None, momentum=0.8) == NesterovMomentum(
        lr=0.7, momentum=0.8
    )


@pytest.mark.parametrize(("lr", "momentum"), [(0.0, 0.5), (11.0, 0.5), (1.0, 1.0), (1.0, -0.1)])
def test_numbers_that_make_no_sense_are_refused(lr: float, momentum: float) -> None:
    with pytest.raises(LocalProtocolError, match="the outer"):
        SlowMomentum(lr=lr, momentum=momentum)


def test_only_the_plain_average_has_no_velocity() -> None:
    keeps = [rule.has_velocity for rule in (OuterAvg(), SlowMomentum(), NesterovMomentum())]
    assert keeps == [False, True, True]
