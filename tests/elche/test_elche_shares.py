"""Recent shares, and a batch more on calm cycles."""

import pytest
from elche_world import ElcheWorld
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.growth import relaxed_anchor
from flodl_core.elche.guards import NudgeDown, Stable, SuppressGrowth
from flodl_core.elche.settings import ElcheSettings
from flodl_core.elche.shares import RecentShares
from flodl_core.ids import Rank


def test_before_any_window_the_counts_of_now_are_the_shares():
    assert RecentShares().mean({0: 30, 1: 10}) == {0: 0.75, 1: 0.25}
    assert RecentShares().mean({}) == {}


def test_shares_are_the_mean_of_the_windows_parts():
    shares = RecentShares()
    shares.push({0: 1, 1: 1})
    shares.push({0: 300, 1: 100})
    assert shares.mean({0: 300, 1: 100}) == {0: 0.625, 1: 0.375}


def test_only_ten_windows_count():
    shares = RecentShares()
    shares.push({0: 99, 1: 1})
    for _ in range(10):
        shares.push({0: 1, 1: 1})
    assert shares.mean({0: 1, 1: 1}) == {0: 0.5, 1: 0.5}


def test_who_is_gone_leaves_its_part_to_the_others():
    shares = RecentShares()
    shares.push({0: 2, 1: 1, 2: 1})
    assert shares.mean({0: 2, 1: 1}) == {0: pytest.approx(2 / 3), 1: pytest.approx(1 / 3)}


def test_a_balancer_tells_recent_shares():
    world = ElcheWorld(10, 30)
    assert world.balancer.recent_shares == {0: 0.5, 1: 0.5}
    world.windows(3)
    assert world.balancer.recent_shares == {0: pytest.approx(0.75), 1: pytest.approx(0.25)}


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), max_size=15),
    st.integers(0, 2),
)
def test_shares_sum_to_one(windows, lost):
    shares = RecentShares()
    for counts in windows:
        shares.push(dict(enumerate(counts)))
    mean = shares.mean({Rank(rank): 1 for rank in range(3) if rank != lost})
    assert not mean or sum(mean.values()) == pytest.approx(1)


# relaxing


@pytest.mark.parametrize(
    ("anchor", "speeds", "knobs", "after"),
    [
        (10, (10, 20), {}, 11),
        (10, (), {}, 10),
        (1000, (10, 20), {}, 1000),
        (10, (10, 20), {"max_batch_diff": 11}, 11),  # 22 - 11
        (10, (10, 20), {"max_batch_diff": 10}, 10),
        (10, (10, 10), {"max_batch_diff": 0}, 11),
        (5, (5, 60), {"max_batch_diff": 66}, 6),  # 72 - 6
        (5, (5, 60), {"max_batch_diff": 65}, 5),
    ],
)
def test_a_relaxed_anchor_is_as_worked_out_by_hand(anchor, speeds, knobs, after):
    assert relaxed_anchor(anchor, speeds, settings=ElcheSettings(**knobs)) == after


def relaxing(**knobs) -> ElcheWorld:
    return ElcheWorld(10, 20, settings=ElcheSettings(relax_up=True, max_anchor=40, **knobs))


def test_each_calm_cycle_adds_a_batch_up_to_the_maximum():
    world = relaxing()
    anchors = [world.windows().anchor for _ in range(35)]
    assert anchors == [min(11 + number, 40) for number in range(35)]
    assert "relax_up" in relaxing().windows().reason


def test_by_default_nothing_relaxes():
    assert ElcheWorld(10, 20).windows(30).anchor == 10


def test_nothing_relaxes_while_growth_is_off():
    world = relaxing()
    world.windows(3)
    assert world.windows(1, SuppressGrowth("why")).anchor == 13
    # five stable verdicts open the latch; the fifth is calm already
    assert [world.windows().anchor for _ in range(6)] == [13, 13, 13, 13, 14, 15]


def test_a_nudge_beats_relaxing():
    world = relaxing()
    world.windows(10)
    assert world.windows(1, NudgeDown(0.5, "why")).anchor == 10


def test_a_cap_that_binds_and_pinned_counts_do_not_relax():
    world = relaxing()
    world.balancer.set_window_cap(12)
    assert world.windows(10).anchor == 10
    assert relaxing(pinned_counts=(4, 2)).windows(10).anchor == 2


def test_a_growth_that_is_due_is_not_added_to():
    world = ElcheWorld(10, 20, sync_ms=400, settings=ElcheSettings(relax_up=True))
    world.report()
    world.balancer.apply(Stable())
    proposed = world.report().proposed_anchor
    assert world.balancer.apply(Stable()).anchor == proposed == 22
