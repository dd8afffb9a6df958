"""bf16 against exact rational arithmetic: nearest, ties away from zero, differences before sums."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.errors import LocalProtocolError
from flodl_core.reduce.fold import Fold, Term
from flodl_core.reduce.narrow import BF16_ROUNDING, PIECE_VALUES, Narrow

SIZED = st.floats(min_value=-(2.0**120), max_value=2.0**120, width=32)
NORMAL = st.one_of(
    st.just(0.0),
    st.floats(min_value=2.0**-100, max_value=2.0**100, width=32),
    st.floats(min_value=-(2.0**100), max_value=-(2.0**-100), width=32),
)


def array(values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


def rounded(values: np.ndarray) -> np.ndarray:
    out = np.empty(values.size, np.uint16)
    Narrow().round_into(out, values)
    return out


def nearest(value: float) -> Fraction:
    """The nearest number of 8 significant bits; of two, the larger in size."""
    if value == 0:
        return Fraction(0)
    exponent = max(math.frexp(abs(value))[1] - 8, -133)
    unit = Fraction(2) ** exponent
    whole = math.floor(abs(Fraction(value)) / unit + Fraction(1, 2))
    return unit * whole * (1 if value > 0 else -1)


@given(st.lists(SIZED, min_size=1, max_size=20))
def test_each_value_becomes_the_nearest_one(values: list[float]) -> None:
    widened = Narrow().widen(rounded(array(values)))
    assert [Fraction(float(value)) for value in widened] == [nearest(value) for value in values]


@given(st.lists(SIZED, min_size=1, max_size=20))
def test_away_from_ties_it_is_what_torch_makes_of_it(values: list[float]) -> None:
    ours = rounded(array(values))
    theirs = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16).view(torch.int16)
    ties = (array(values).view(np.uint32) & 0xFFFF) == 0x8000
    np.testing.assert_array_equal(ours[~ties], theirs.numpy().view(np.uint16)[~ties])


@given(st.lists(NORMAL, min_size=1, max_size=20))
def test_one_rounding_is_inside_its_unit(values: list[float]) -> None:
    widened = Narrow().widen(rounded(array(values)))
    for value, found in zip(values, widened.tolist(), strict=True):
        assert abs(found - value) <= BF16_ROUNDING * abs(value)


@given(st.integers(0, 2**16 - 1))
def test_what_is_bf16_already_stays_as_it_is(bits: int) -> None:
    value = np.array([bits], np.uint16)
    widened = Narrow().widen(value).copy()
    if np.isfinite(widened[0]):
        assert rounded(widened)[0] == bits


@pytest.mark.parametrize("size", [1, PIECE_VALUES - 1, PIECE_VALUES, PIECE_VALUES + 1])
def test_pieces_fit_together(size: int) -> None:
    random = np.random.default_rng(size)
    values = random.standard_normal(size).astype(np.float32)
    whole = rounded(values)
    wide = torch.from_numpy(whole.view(np.int16)).view(torch.bfloat16).float().numpy()
    assert (abs(wide - values) <= BF16_ROUNDING * abs(values)).all()
    base = random.standard_normal(size).astype(np.float32)
    expected = base + wide
    Narrow().add_into(base, base, whole)
    np.testing.assert_array_equal(base, expected)


@st.composite
def cohorts(draw: st.DrawFn) -> tuple[list[np.ndarray], list[float], np.ndarray]:
    size, count = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    near = st.floats(min_value=-1e6, max_value=1e6, width=32)
    small = st.floats(min_value=-(2.0**-10), max_value=2.0**-10, width=32)
    base = array(draw(st.lists(near, min_size=size, max_size=size)))
    rows = [base + array(draw(st.lists(small, min_size=size, max_size=size))) for _ in range(count)]
    masses = [float(draw(st.integers(1, 1000))) for _ in range(count)]
    return rows, masses, base


@settings(deadline=None)
@given(cohorts())
def test_the_mean_of_differences_is_inside_one_rounding(
    cohort: tuple[list[np.ndarray], list[float], np.ndarray],
) -> None:
    rows, masses, base = cohort
    out = np.empty(base.size, np.uint16)
    terms = [Term(row, mass, base) for row, mass in zip(rows, masses, strict=True)]
    Fold().combine_narrow(out, terms, divisor=sum(masses))
    total = sum(Fraction(mass) for mass in masses)
    for index, found in enumerate(Narrow().widen(out).tolist()):
        apart = [
            Fraction(mass) * (Fraction(float(row[index])) - Fraction(float(base[index])))
            for row, mass in zip(rows, masses, strict=True)
        ]
        exact = sum(apart) / total
        size = sum(abs(one) for one in apart) / total
        wide = (len(rows) + 5) * Fraction(1, 2**24) * size
        narrow = Fraction(BF16_ROUNDING) * (abs(exact) + wide)
        assert abs(Fraction(found) - exact) <= wide + narrow + Fraction(1, 2**133)


def test_a_subtotal_that_came_as_bf16_is_added_as_it_is() -> None:
    out = np.empty(3, np.float32)
    subtotal = rounded(array([1.0, -2.0, 0.5]))
    rank = Term(array([5.0, 5.0, 5.0]), 2.0, array([4.0, 6.0, 5.0]))
    Fold().combine(out, [rank, Term(subtotal, 1.0), Term(subtotal, 1.0)], divisor=2.0)
    assert out.tolist() == [2.0, -3.0, 0.5]
    Fold().combine(out, [Term(subtotal, 1.0), rank])
    assert out.tolist() == [3.0, -4.0, 0.5]


def test_a_base_of_another_length_is_refused() -> None:
    term = Term(np.zeros(3, np.float32), 1.0, np.zeros(2, np.float32))
    with pytest.raises(LocalProtocolError, match="3 values over 2, expected 3 as in the sum"):
        Fold().combine(np.empty(3, np.float32), [term])
