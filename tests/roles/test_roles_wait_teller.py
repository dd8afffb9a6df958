"""Which waits become lines: new ones at once, the same again less and less, long ones always."""

from hypothesis import given
from hypothesis import strategies as st

from flodl_core.roles.wait_teller import WaitTeller
from flodl_core.telemetry.state import WaitState


def wait(age_s: float, *, rank: int = 1, phase: str = "held", ceiling_s: float = 300.0):
    return WaitState(
        rank=rank, host="red", phase=phase, age_s=age_s, ceiling_s=ceiling_s, outcome="it is lost"
    )


def teller():
    told: list[WaitState] = []
    return WaitTeller(told.append), told


def test_a_wait_that_goes_on_is_told_once_until_a_minute_is_over() -> None:
    reads, told = teller()
    for second in range(59):
        reads.read([wait(5.0 + second)], float(second))
    assert [one.age_s for one in told] == [5.0]
    reads.read([wait(66.0)], 60.0)
    assert [one.age_s for one in told] == [5.0, 66.0]


def test_waits_of_one_sort_are_told_after_one_two_four_minutes_and_then_each_hour() -> None:
    reads, told = teller()
    times = [float(second) for second in range(0, 30_000, 10) if _tells(reads, told, float(second))]
    assert times[:7] == [0.0, 60.0, 180.0, 420.0, 900.0, 1860.0, 3780.0]
    assert times[7:] == [7380.0, 10_980.0, 14_580.0, 18_180.0, 21_780.0, 25_380.0, 28_980.0]


def _tells(reads: WaitTeller, told: list[WaitState], now: float) -> bool:
    before = len(told)
    reads.read([wait(6.0)], now)
    return len(told) > before


def test_numbers_in_its_words_make_no_new_sort() -> None:
    reads, told = teller()
    reads.read([wait(6.0, phase="cycle 12 is counting; not acknowledged by ranks: 1")], 0.0)
    reads.read([wait(6.0, phase="cycle 13 is counting; not acknowledged by ranks: 1")], 5.0)
    assert len(told) == 1


def test_other_ranks_and_other_phases_are_other_sorts() -> None:
    reads, told = teller()
    reads.read([wait(6.0), wait(6.0, rank=2), wait(6.0, phase="data")], 0.0)
    assert len(told) == 3


def test_a_wait_past_half_of_its_ceiling_is_told_once_each_time_it_gets_there() -> None:
    reads, told = teller()
    for age in (6.0, 149.0, 150.0, 151.0, 200.0):
        reads.read([wait(age)], age / 100)
    assert [one.age_s for one in told] == [6.0, 150.0]
    reads.read([], 3.0)
    reads.read([wait(160.0)], 4.0)
    assert [one.age_s for one in told] == [6.0, 150.0, 160.0]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(5.0, 149.0)), max_size=200))
def test_short_waits_are_told_at_most_once_a_sort_in_a_minute(found) -> None:
    reads, told = teller()
    for number, (rank, age) in enumerate(found):
        reads.read([wait(age, rank=rank)], number * 0.25)
    assert len(told) == len({rank for rank, _ in found})
