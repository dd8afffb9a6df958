"""The rules of mass, against values worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.errors import LocalProtocolError
from flodl_core.reduce.mass import gamma_mass, is_realized, is_representable, mover_mass
from flodl_core.units import FLOAT32_MAX

GAMMAS = st.floats(min_value=-8, max_value=8)


@pytest.mark.parametrize(
    ("n", "gamma", "mass"),
    [
        (7, 1.0, 7.0),
        (7, 0.0, 1.0),
        (4, -1.0, 0.25),
        (4, 0.5, 2.0),
        (3, 2.0, 9.0),
        (10, -8.0, 1e-8),
    ],
)
def test_a_rank_that_moved_weighs_n_to_the_gamma(n: int, gamma: float, mass: float) -> None:
    assert gamma_mass(n, gamma) == pytest.approx(mass, rel=1e-15)


@given(st.integers(min_value=-5, max_value=0), GAMMAS)
def test_an_idle_rank_weighs_nothing_for_any_gamma(n: int, gamma: float) -> None:
    assert gamma_mass(n, gamma) == 0.0
    assert mover_mass(n) == 0.0


@given(st.integers(min_value=1, max_value=10**9), GAMMAS)
def test_every_mover_has_a_positive_finite_mass(n: int, gamma: float) -> None:
    mass = gamma_mass(n, gamma)
    assert mass > 0
    assert math.isfinite(mass)
    assert mover_mass(n) == 1.0


@given(st.integers(min_value=1, max_value=2**53))
def test_gamma_one_is_the_exact_count(n: int) -> None:
    assert gamma_mass(n, 1.0) == n


@pytest.mark.parametrize("gamma", [math.nan, math.inf, -math.inf, 8.1, -9.0])
def test_a_gamma_outside_its_range_is_refused(gamma: float) -> None:
    with pytest.raises(LocalProtocolError, match="gamma"):
        gamma_mass(3, gamma)


def test_any_positive_mass_realizes_a_round() -> None:
    assert is_realized(5e-324)
    assert not is_realized(0.0)


def test_a_snapshot_fits_the_wire_if_the_whole_world_could_send_it() -> None:
    assert is_representable(10.0, FLOAT32_MAX / 41, world_size=4)
    assert not is_representable(10.0, FLOAT32_MAX / 39, world_size=4)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_never_fit(value: float) -> None:
    assert not is_representable(1.0, value, world_size=2)
    assert not is_representable(value, 1.0, world_size=2)


def test_a_mass_that_does_not_fit_is_refused_even_for_zeros() -> None:
    assert not is_representable(1e39, 0.0, world_size=1)
