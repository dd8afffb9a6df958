"""The fold against exact rational arithmetic."""

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.errors import LocalProtocolError
from flodl_core.reduce.fold import PIECE_VALUES, Fold, Term
from flodl_core.units import FLOAT32_MAX


def array(values: Sequence[float]) -> np.ndarray:
    return np.array(values, np.float32)


def tree(fold: Fold, hosts: Sequence[Sequence[Term]], size: int) -> np.ndarray:
    """Rank → host → root, as the planes fold."""
    subtotals = []
    for terms in hosts:
        if terms:
            acc = np.empty(size, np.float32)
            fold.combine(acc, terms)
            subtotals.append(Term(acc, 1.0))
    out = np.empty(size, np.float32)
    mass = sum(term.mass for terms in hosts for term in terms)
    fold.combine(out, subtotals, divisor=mass)
    return out


def assert_inside_the_bound(result: np.ndarray, terms: Sequence[Term]) -> None:
    count = len(terms)
    total = sum(Fraction(term.mass) for term in terms)
    for index, value in enumerate(result.tolist()):
        products = [Fraction(term.mass) * Fraction(float(term.values[index])) for term in terms]
        exact = sum(products) / total
        size = sum(abs(product) for product in products) / total
        bound = (count + 4) * Fraction(1, 2**24) * size
        bound += Fraction(1, 2**149) * (1 + count / total)
        assert abs(Fraction(value) - exact) <= bound


@st.composite
def contributions(draw: st.DrawFn) -> tuple[list[list[Term]], int]:
    """Some hosts of some ranks each; values that cancel, masses of any size."""
    size = draw(st.integers(1, 4))
    count = draw(st.integers(1, 7))
    masses = st.one_of(
        st.integers(1, 1000).map(float),
        st.floats(min_value=2.0**-148, max_value=1e6),
        st.floats(min_value=1e-44, max_value=1e-37),
    )
    terms = []
    previous: np.ndarray | None = None
    for _ in range(count):
        mass = draw(masses)
        limit = min(FLOAT32_MAX, FLOAT32_MAX / count / mass) * 0.999
        values = draw(
            st.lists(
                st.floats(min_value=-limit, max_value=limit, width=64),
                min_size=size,
                max_size=size,
            )
        )
        made = array(values)
        if previous is not None and draw(st.booleans()):
            made = -previous
            mass = terms[-1].mass
        previous = made
        terms.append(Term(made, mass))
    cuts = sorted(draw(st.lists(st.integers(0, count), max_size=3)))
    edges = [0, *cuts, count]
    return [terms[low:high] for low, high in itertools.pairwise(edges)], size


@given(contributions())
def test_the_average_is_inside_the_bound_also_where_values_cancel(
    case: tuple[list[list[Term]], int],
) -> None:
    hosts, size = case
    terms = [term for host in hosts for term in host]
    assert_inside_the_bound(tree(Fold(), hosts, size), terms)


@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
def test_opposite_large_values_leave_the_small_ones(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    size = 50
    values = random.standard_normal((count, size)).astype(np.float32)
    values[0] += np.float32(1e4)
    values[-1] -= np.float32(1e4)
    terms = [Term(row, float(mass)) for row, mass in zip(values, [3] * count, strict=True)]
    assert_inside_the_bound(tree(Fold(), [terms[:1], terms[1:]], size), terms)


def test_one_two_four_after_one_ten_hundred_steps_is_421_over_111() -> None:
    for hosts in ([3], [1, 2], [2, 1], [1, 1, 1]):
        terms = [Term(array([value]), mass) for value, mass in ((1, 1.0), (2, 10.0), (4, 100.0))]
        grouped, at = [], 0
        for size in hosts:
            grouped.append(terms[at : at + size])
            at += size
        (result,) = tree(Fold(), grouped, 1).tolist()
        exact = np.float32(421 / 111)
        assert abs(result - exact) <= np.spacing(exact)


def test_an_equal_mass_average_of_equal_values_is_that_value() -> None:
    value = array([0.1, -3.7, 1e30, 0.0])
    result = tree(Fold(), [[Term(value, 3.0)], [Term(value, 3.0)]], 4)
    np.testing.assert_allclose(result, value, rtol=2.0**-22)


@given(st.integers(1, 3), st.sampled_from([1.0, 0.5, 3.0, 1e-42, 7.25]))
def test_pieces_do_not_show_in_the_result(pieces: int, mass: float) -> None:
    size = PIECE_VALUES * pieces + 13
    x = np.linspace(-4, 4, size, dtype=np.float32)
    y = np.linspace(9, -1, size, dtype=np.float32)
    whole = np.empty(size, np.float32)
    Fold().combine(whole, (Term(x, mass), Term(y, 2.0)), divisor=mass + 2.0)
    for start in (0, PIECE_VALUES - 1, size - 5):
        part = np.empty(5, np.float32)
        rows = slice(start, start + 5)
        Fold().combine(part, (Term(x[rows], mass), Term(y[rows], 2.0)), divisor=mass + 2.0)
        np.testing.assert_array_equal(part, whole[rows])


def test_the_single_moves_do_what_they_say() -> None:
    fold, acc = Fold(), array([0, 0])
    fold.scale_into(acc, array([1, 2]), 3.0)
    assert acc.tolist() == [3, 6]
    fold.add_scaled(acc, array([1, 1]), 0.5)
    assert acc.tolist() == [3.5, 6.5]
    fold.add(acc, array([0.5, 0.5]))
    assert acc.tolist() == [4, 7]
    fold.divide_once(acc, 4.0)
    assert acc.tolist() == [1, 1.75]


def test_the_sum_may_be_made_in_the_first_terms_own_place() -> None:
    acc = array([1, 2])
    Fold().combine(acc, (Term(acc, 2.0), Term(array([10, 10]), 1.0)), divisor=2.0)
    assert acc.tolist() == [6, 7]


def test_values_that_are_not_finite_pass_without_a_warning() -> None:
    acc = array([0, 0])
    Fold().combine(acc, (Term(array([np.inf, 1]), 2.0), Term(array([-np.inf, 1]), 2.0)))
    assert np.isnan(acc[0])
    assert acc[1] == 4


@pytest.mark.parametrize("mass", [0.0, -1.0, float("nan"), float("inf"), 1e39])
def test_a_mass_that_cannot_weigh_is_refused(mass: float) -> None:
    with pytest.raises(LocalProtocolError, match="mass"):
        Fold().combine(array([0]), (Term(array([1]), mass),))


@pytest.mark.parametrize("divisor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_divisor_that_cannot_divide_is_refused(divisor: float) -> None:
    with pytest.raises(LocalProtocolError, match="divisor"):
        Fold().divide_once(array([1]), divisor)


def test_contributions_of_different_length_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="expected 2"):
        Fold().combine(array([0, 0]), (Term(array([1]), 1.0),))


def test_a_sum_of_nothing_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="no contributions"):
        Fold().combine(array([0]), ())
