"""Who is the anchor rank, and what hardware says before anything is measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.election import DeviceFacts, elect_anchor, hardware_prior

SPEEDS = st.dictionaries(st.integers(0, 9), st.floats(0.1, 1e4), min_size=1)


@pytest.mark.parametrize(
    ("speeds", "current", "elected"),
    [
        ({}, None, None),
        ({}, 1, None),
        ({0: 5, 1: 60}, None, 1),
        ({0: 60, 1: 60}, None, 0),  # exact ties go to the lowest
        ({1: 60, 0: 60}, None, 0),
        ({0: 60, 1: 60}, 1, 1),  # the current one keeps its seat
        ({0: 65, 1: 60}, 1, 1),  # slower by 8 %: not enough
        ({0: 66, 1: 60}, 1, 1),  # by 10 %: not more than 10 %
        ({0: 66.1, 1: 60}, 1, 0),  # by more
        ({0: 72, 1: 60}, 1, 0),  # and out of the cohort
        ({0: 5, 1: 60}, 0, 1),
        ({0: 5, 1: 60}, 7, 1),  # the current one is not measured
    ],
)
def test_elections_are_as_worked_out_by_hand(speeds, current, elected):
    assert elect_anchor(speeds, current) == elected


@pytest.mark.slow
@given(SPEEDS, st.none() | st.integers(0, 9))
def test_the_elected_is_within_ten_percent_of_the_slowest_and_an_election_is_settled(
    speeds, current
):
    elected = elect_anchor(speeds, current)
    assert elected is not None
    assert speeds[elected] * 1.1 >= max(speeds.values()) * (1 - 1e-9)
    assert elect_anchor(speeds, elected) == elected


def device(generation: int, memory_gb: float, vendor: str = "a") -> DeviceFacts:
    return DeviceFacts(vendor=vendor, generation=generation, memory_gb=memory_gb)


def test_the_prior_is_the_least_of_generation_times_ten_and_gigabytes():
    assert (
        hardware_prior({0: device(8, 24), 1: device(7, 32), 2: device(9, 80)}) == 1
    )  # 104 102 170
    assert hardware_prior({0: device(8, 24), 1: device(7, 40), 2: device(9, 80)}) == 0


def test_a_tie_of_the_prior_goes_to_the_lowest_rank():
    assert hardware_prior({2: device(8, 20), 1: device(9, 10), 3: device(10, 0)}) == 1


def test_there_is_no_prior_for_mixed_vendors_unknown_devices_or_nobody():
    assert hardware_prior({0: device(8, 24), 1: device(7, 32, "b")}) is None
    assert hardware_prior({0: device(8, 24), 1: None}) is None
    assert hardware_prior({}) is None
