"""Hosts in network namespaces: a wire that is cut without a word, one way, slow or lossy."""

import threading
from collections.abc import Iterator

import pytest
from chaos_networks import Networks, why_not
from chaos_world import EVERY_RANK, ChaosWorld
from harness import SHORT_S

pytestmark = [
    pytest.mark.processes,
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "never"),
]

CEILING_S = 6.0
SLACK_S = 1.0
GRACE_S = 12.0
"""From the ceiling to the end of a host that cannot reach its launcher: it may write a file."""
CUT_S = 30.0
SHORT_CUT_S = 3.0
WORDS = ("--heartbeat-timeout-s", f"{CEILING_S:g}", "--heartbeat-interval-s", "0.5")


@pytest.fixture
def networks() -> Iterator[Networks]:
    """Two namespaces and their wire."""
    made = Networks()
    yield made
    made.close()


def begin(start, networks: Networks) -> ChaosWorld:
    """Start a run over the wire, up to the fourth batch of rank 1, which waits."""
    world = start(*WORDS, roads=networks.roads, park="rank1:compute:4")
    world.until_parked("rank1", "compute")
    world.until_heard()
    return world


def check_far_host_lost(world: ChaosWorld, at: float) -> None:
    for rank in (2, 3):
        told = world.lost(rank)
        assert "relay or link is down" in told
        assert CEILING_S - SLACK_S <= world.told_after(at, rank) <= CEILING_S + SLACK_S


def check_the_near_host_went_on(world: ChaosWorld) -> None:
    assert world.run.finish(leaves_guest=True) == 0
    world.check_whole()
    world.check_survivors((0, 1))
    assert world.run.summary["alerts"]["rank_lost"] == 2


def test_a_cut_for_ever_loses_the_host_at_the_ceiling_and_both_sides_end(start, networks) -> None:
    world = begin(start, networks)
    networks.order("cut both")
    check_far_host_lost(world, world.now())
    said = world.guest_ends(GRACE_S)
    assert said.code == 7, said
    world.go()
    check_the_near_host_went_on(world)
    world.run.check_nothing_left()


def test_a_cut_that_heals_after_the_ceiling_brings_nobody_back(start, networks) -> None:
    world = begin(start, networks)
    networks.order("cut both")
    check_far_host_lost(world, world.now())
    threading.Event().wait(CUT_S - CEILING_S)
    networks.order("heal")
    said = world.guest_ends(GRACE_S)
    assert said.code == 7, said
    world.go()
    check_the_near_host_went_on(world)
    world.run.check_nothing_left()


def test_a_cut_that_heals_before_the_ceiling_costs_nothing(start, networks) -> None:
    world = begin(start, networks)
    networks.order("cut both")
    threading.Event().wait(SHORT_CUT_S)
    networks.order("heal")
    world.go()
    assert world.finish() == 0
    world.check_whole()
    world.check_survivors(EVERY_RANK)
    assert world.run.summary["alerts"] == {}


@pytest.mark.parametrize("way", ["forth", "back"])
def test_a_wire_that_is_cut_one_way_is_cut(start, networks, way: str) -> None:
    world = begin(start, networks)
    networks.order(f"cut {way}")
    at = world.now()
    for rank in (2, 3):
        world.lost(rank)
        assert CEILING_S - SLACK_S <= world.told_after(at, rank) <= CEILING_S + GRACE_S
    said = world.guest_ends(CEILING_S + GRACE_S)
    assert said.code == 7, said
    world.go()
    check_the_near_host_went_on(world)
    world.run.check_nothing_left()


def test_two_hundred_milliseconds_and_lost_packets_are_only_slow(start, networks) -> None:
    networks.order("slow 100 1")
    world = start(*WORDS, roads=networks.roads)
    assert world.run.finish(SHORT_S * 2, leaves_guest=True) == 0
    assert world.finish() == 0
    world.check_whole()
    world.check_survivors(EVERY_RANK)
    assert world.run.summary["alerts"] == {}
