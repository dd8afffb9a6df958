"""Where ranks average among themselves, what one of them brings to the root counts as a whole.

Each test plays the ranks: in a cycle of the root's own one rank has mass, all others none.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from planes_world import Work, World, geometry_of, wait_until

from flodl_core.ids import Mode, OuterKind, Round, RoundOutcome
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.job import OuterSpec
from flodl_core.units import BUCKET_BYTES

SLOWMO = OuterSpec(kind=OuterKind.SLOWMO, lr=1.0, momentum=0.9)
BUCKET = BUCKET_BYTES // 4
SIZE = BUCKET + 16

Build = Callable[..., World]


@pytest.fixture
def build() -> Iterator[Build]:
    """Worlds whose ranks are all on worker hosts, one each."""
    made: list[World] = []

    def make(params: int, buffers: int, *, ranks: int = 1, outer: OuterSpec | None = None) -> World:
        geometry = geometry_of([params], [buffers])
        hosts = [[rank] for rank in range(ranks)]
        world = World(geometry, hosts, local=False, outer=outer, mode=Mode.NCCL_SYNC)
        made.append(world)
        return world

    yield make
    for world in made:
        world.close()


def bring(world: World, cycle: int, values: float, *, ranks: Sequence[int], by: int = 0) -> None:
    """Rank `by` brings these values of parameters, and one more of buffers; all take part."""
    for rank in ranks:
        world.ready(cycle, rank, Work(int(rank == by), values, values + 1))


def publish(world: World, cycle: int, values: float, *, ranks: Sequence[int], by: int = 0) -> None:
    bring(world, cycle, values, ranks=ranks, by=by)
    for rank in ranks:
        world.collect(cycle, rank)


def break_off(world: World, cycle: int, round_: Round, index: int) -> None:
    """Have the link of rank 0's host break at a bucket of a cycle."""

    def rule(frame: BucketFrame) -> str | None:
        is_there = (frame.cycle, frame.round, frame.index) == (cycle, round_, index)
        return "within" if is_there else None

    world.links["h0"][0].cut_rule = rule


def outcomes(world: World, cycle: int) -> dict[Round, RoundOutcome]:
    """Wait for the end of a cycle; return how its rounds ended."""
    wait_until(lambda: any((one.cycle, one.round) == (cycle, Round.BUFFERS) for one in world.ended))
    return {one.round: one.outcome for one in world.ended if one.cycle == cycle}


def expect_held(world: World, version: int, values: float) -> None:
    """The newest version that a save may have is this one, all of it."""
    with world.root.begin_save(99) as view:
        assert view.version == version
        part = world.geometry.params[0].numel
        assert np.unique(view.params[:part]).tolist() == [values]
        part = world.geometry.buffers[0].numel
        assert np.unique(view.buffers[:part]).tolist() == [values + 1]


@pytest.mark.parametrize("index", [0, 1])
def test_parameters_of_which_a_bucket_is_missing_are_no_version(build: Build, index: int) -> None:
    world = build(SIZE, 7)
    publish(world, 0, 1.0, ranks=[0])
    break_off(world, 1, Round.PARAMS, index)
    bring(world, 1, 5.0, ranks=[0])
    assert outcomes(world, 1) == {
        Round.CONTROL: RoundOutcome.COMMITTED,
        Round.PARAMS: RoundOutcome.UNREALIZED,
        Round.BUFFERS: RoundOutcome.UNREALIZED,
    }
    expect_held(world, 0, 1.0)


@pytest.mark.parametrize("index", [0, 1])
def test_parameters_without_all_their_buffers_are_no_version(build: Build, index: int) -> None:
    world = build(9, SIZE)
    publish(world, 0, 1.0, ranks=[0])
    break_off(world, 1, Round.BUFFERS, index)
    bring(world, 1, 5.0, ranks=[0])
    assert outcomes(world, 1)[Round.BUFFERS] is RoundOutcome.UNREALIZED
    expect_held(world, 0, 1.0)


def test_a_link_that_breaks_behind_the_last_bucket_costs_nothing(build: Build) -> None:
    world = build(9, 7)
    publish(world, 0, 1.0, ranks=[0])
    bring(world, 1, 5.0, ranks=[0])
    world.collect(1, 0)
    world.links["h0"][0].close()
    wait_until(lambda: "h0" in world.closed)
    expect_held(world, 1, 5.0)


def test_what_another_rank_brings_next_is_formed_beside_the_version_that_is_held(
    build: Build,
) -> None:
    """Rank 0 breaks off before its buffers; a save of the version before is under way then."""
    world = build(9, 7, ranks=2)
    publish(world, 0, 1.0, ranks=[0, 1])
    publish(world, 1, 3.0, ranks=[0, 1])
    break_off(world, 2, Round.BUFFERS, 0)
    bring(world, 2, 5.0, ranks=[0, 1])
    world.collect(2, 1)
    with world.root.begin_save(1) as before:
        publish(world, 3, 7.0, ranks=[1], by=1)
        assert (before.version, before.params[8], before.buffers[6]) == (1, 3.0, 4.0)
    expect_held(world, 3, 7.0)


def test_a_velocity_that_did_not_come_as_a_whole_is_not_held(build: Build) -> None:
    """Velocities go up in 3 and 5, values in 4 and 6; cycle 5 breaks off in its buffers."""
    world = build(9, 7, ranks=2, outer=SLOWMO)
    publish(world, 0, 1.0, ranks=[0, 1])
    publish(world, 3, -2.0, ranks=[0, 1])
    publish(world, 4, 3.0, ranks=[0, 1])
    break_off(world, 5, Round.BUFFERS, 0)
    bring(world, 5, -5.0, ranks=[0, 1])
    world.collect(5, 1)
    expect_held(world, 4, 3.0)
    with world.root.begin_save(4) as view:
        assert view.outer.velocity[:9].tolist() == [-2.0] * 9
    publish(world, 7, -6.0, ranks=[1], by=1)
    publish(world, 8, 8.0, ranks=[1], by=1)
    expect_held(world, 8, 8.0)
    with world.root.begin_save(8) as view:
        assert view.outer.velocity[:9].tolist() == [-6.0] * 9


def test_parameters_of_which_a_bucket_is_missing_do_not_take_the_velocitys_place(
    build: Build,
) -> None:
    """The velocity came, the values behind it only in part: nothing is named by their number."""
    world = build(SIZE, 7, outer=SLOWMO)
    publish(world, 0, 1.0, ranks=[0])
    publish(world, 3, -2.0, ranks=[0])
    break_off(world, 4, Round.PARAMS, 1)
    bring(world, 4, 5.0, ranks=[0])
    outcomes(world, 4)
    assert world.root.committed_version == 3
