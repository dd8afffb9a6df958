"""Trouble at every bucket of a cycle: spoiled bytes, cut links, a root or the last mover gone.

Whatever goes wrong and wherever: no rank's parameters change before the RoundEnd that
ends the cycle, those who go on have the same bits, and what can be saved is a commit.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
from planes_wire import DOWN, UP
from planes_world import Adopted, Work, World, geometry_of, wait_until

from flodl_core.errors import RunLostError
from flodl_core.ids import Cycle, Rank, Round, RoundOutcome
from flodl_core.messages.data import BucketFrame
from flodl_core.units import BUCKET_BYTES

pytestmark = pytest.mark.slow

BUCKET = BUCKET_BYTES // 4
SIZE = BUCKET * 2 + 100
BUFFERS = 7
PARAMS_BUCKETS = 3
CONTROL, BUFFERS_AT = 0, 1 + PARAMS_BUCKETS
STEPS = {0: (1, 2.0), 1: (2, 8.0), 2: (1, 4.0)}
WITH, WITHOUT = (2 + 16 + 4) / 4, (2 + 4) / 2
FIRST = 1.0

Build = Callable[..., World]


@pytest.fixture
def build() -> Iterator[Build]:
    made: list[World] = []

    def make(link: str, wire: str = "f32", local: bool = True) -> World:
        world = World(geometry_of([SIZE], [BUFFERS]), [[0], [1], [2]], local, link, wire)
        made.append(world)
        world.run(0, {rank: Work(int(rank == 0), FIRST, FIRST) for rank in range(3)})
        return world

    yield make
    for world in made:
        world.close()


def begin(world: World, cycle: int = 1) -> None:
    for rank, (n, value) in STEPS.items():
        world.ready(cycle, rank, Work(n, value, value))


def assert_one_consensus(adopted: Mapping[int, Adopted]) -> Adopted:
    first, *others = adopted.values()
    for other in others:
        np.testing.assert_array_equal(first.params, other.params)
        np.testing.assert_array_equal(first.buffers, other.buffers)
        assert first.ends == other.ends
    return first


def assert_slots_are_untouched(world: World) -> None:
    """A CPU rank's parameters are its slot; the plane has only read them."""
    for rank, (_, value) in STEPS.items():
        slot = world.clients[rank].slot
        assert (slot.params[:SIZE] == value).all()
        assert (slot.buffers[:BUFFERS] == value).all()


def assert_saved_is_committed(world: World, adopted: Adopted, version: int) -> None:
    with world.root.begin_save(version) as view:
        assert view.version == version
        np.testing.assert_array_equal(view.params, adopted.params)
        np.testing.assert_array_equal(view.buffers, adopted.buffers)


@pytest.mark.parametrize(("kind", "wire"), [("flip", "f32"), ("cut", "f32"), ("flip", "bf16")])
@pytest.mark.parametrize("direction", [UP, DOWN])
@pytest.mark.parametrize("bucket", range(PARAMS_BUCKETS + 2))
def test_trouble_on_the_wire_costs_the_host_behind_it_and_nobody_else(
    build: Build, bucket: int, direction: str, kind: str, wire: str
) -> None:
    """Buckets 0 to 4 of a cycle: the control vector, three of parameters, one of buffers."""
    world = build("wired", wire)
    world.wires["h1"].arm(direction, bucket, kind)
    begin(world)
    adopted = {rank: world.collect(1, rank) for rank in (0, 2)}
    with pytest.raises(RunLostError):
        world.collect(1, 1)
    one = assert_one_consensus(adopted)
    assert_slots_are_untouched(world)
    _assert_host_is_out_from(bucket, direction, one)
    wait_until(lambda: "h1" in world.closed)
    assert_saved_is_committed(world, one, 1)
    again = world.run(2, {rank: Work(1, 5.0, 5.0) for rank in (0, 2)})
    assert (assert_one_consensus(again).params[:SIZE] == 5).all()
    assert_saved_is_committed(world, again[0], 2)


def _assert_host_is_out_from(bucket: int, direction: str, adopted: Adopted) -> None:
    """What came before the trouble counts; of what it is ahead by, a part may."""
    params, end = adopted.params[:SIZE], adopted.ends[Round.PARAMS]
    assert end.outcome is RoundOutcome.COMMITTED
    sound = max(0, bucket - 1) * BUCKET
    held = np.flatnonzero(params == WITHOUT)
    edge = int(held[0]) if held.size else SIZE
    assert (params[:edge] == WITH).all()
    assert (params[edge:] == WITHOUT).all()
    assert edge == SIZE or edge % BUCKET == 0
    if direction == UP:
        assert edge == min(sound, SIZE)
    else:
        assert edge >= min(sound, SIZE) or bucket == CONTROL
    is_in = edge == SIZE
    buffers = [np.float32(14 / 3)] if is_in and bucket > BUFFERS_AT else [14 / 3, 3.0]
    assert any((adopted.buffers[:BUFFERS] == np.float32(value)).all() for value in buffers)
    assert end.ranks_accepted == ((0, 1, 2) if is_in else (0, 2))
    assert end.mass == (4 if is_in else 2)


@pytest.mark.parametrize(("local", "wire"), [(True, "f32"), (False, "f32"), (True, "bf16")])
@pytest.mark.parametrize("index", range(PARAMS_BUCKETS))
def test_the_last_mover_gone_with_its_host_leaves_the_last_commit_from_there_on(
    build: Build, index: int, local: bool, wire: str
) -> None:
    world = build("fake", wire, local)
    mover = 2
    world.links["h2"][0].cut_rule = _cut_at(index)
    for rank in range(3):
        world.ready(1, rank, Work(int(rank == mover), 50.0 + rank, 50.0 + rank))
    adopted = {rank: world.collect(1, rank) for rank in (0, 1)}
    one = assert_one_consensus(adopted)
    edge = index * BUCKET
    assert (one.params[:edge] == 52).all()
    assert (one.params[edge:SIZE] == FIRST).all()
    assert (one.buffers[:BUFFERS] == FIRST).all()
    committed = RoundOutcome.COMMITTED if index else RoundOutcome.UNREALIZED
    assert one.ends[Round.PARAMS].outcome is committed
    assert one.ends[Round.BUFFERS].outcome is RoundOutcome.UNREALIZED
    version = 1 if index else 0
    assert world.root.committed_version == version
    assert_saved_is_committed(world, one, version)
    again = world.run(2, {rank: Work(1, 5.0, 5.0) for rank in (0, 1)})
    assert (assert_one_consensus(again).params[:SIZE] == 5).all()


def _cut_at(index: int) -> Callable[[BucketFrame], str | None]:
    def rule(frame: BucketFrame) -> str | None:
        is_there = (frame.round, frame.index, frame.cycle) == (Round.PARAMS, index, 1)
        return "within" if is_there else None

    return rule


@pytest.mark.parametrize("index", range(1, PARAMS_BUCKETS))
def test_what_came_counts_also_where_sending_notices_the_end_first(
    build: Build, index: int
) -> None:
    world = build("fake")
    link = world.links["h1"][0]
    link.cut_rule = _cut_at(index)
    link.ended_for = lambda frame: frame.round is Round.PARAMS and frame.cycle == 1
    begin(world)
    one = assert_one_consensus({rank: world.collect(1, rank) for rank in (0, 2)})
    _assert_host_is_out_from(index + 1, UP, one)
    wait_until(lambda: "h1" in world.closed)
    again = world.run(2, {rank: Work(1, 5.0, 5.0) for rank in (0, 2)})
    assert (assert_one_consensus(again).params[:SIZE] == 5).all()


@pytest.mark.parametrize("wire", ["f32", "bf16"])
@pytest.mark.parametrize("index", range(PARAMS_BUCKETS))
def test_the_last_mover_dead_behind_a_link_that_holds_is_in_the_whole_round(
    build: Build, index: int, wire: str
) -> None:
    """Its slot is mapped by its relay, which goes on reading it whenever the rank dies."""
    world = build("fake", wire)
    link, mover = world.links["h2"][0], 2
    died: list[int] = []

    def die_at(frame: BucketFrame) -> None:
        if (frame.round, frame.index, frame.cycle) == (Round.PARAMS, index, 1):
            world.leave(mover)
            world.root.declare_dead(Rank(mover))
            died.append(frame.index)

    link.cut_rule = lambda frame: die_at(frame)
    for rank in range(3):
        world.ready(1, rank, Work(int(rank == mover), 50.0 + rank, 50.0 + rank))
    adopted = {rank: world.collect(1, rank) for rank in (0, 1)}
    assert died == [index]
    one = assert_one_consensus(adopted)
    assert (one.params[:SIZE] == 52).all()
    assert (one.buffers[:BUFFERS] == 52).all()
    assert one.ends[Round.PARAMS].ranks_accepted == (mover,)
    assert_saved_is_committed(world, one, 1)


@pytest.mark.parametrize("wire", ["f32", "bf16"])
@pytest.mark.parametrize("bucket", range(PARAMS_BUCKETS + 2))
def test_a_root_that_goes_changes_no_ranks_parameters(build: Build, bucket: int, wire: str) -> None:
    """Every link ends at the same bucket of the consensus, as when the launcher is killed."""
    world = build("wired", wire, False)
    for one in world.wires.values():
        one.arm(DOWN, bucket, "cut")
    begin(world)
    for rank in STEPS:
        with pytest.raises(RunLostError):
            _wait_for_the_end(world, rank)
    assert_slots_are_untouched(world)
    if wire == "bf16":
        for client in world.clients.values():
            assert (client.staging.params[:SIZE] == FIRST).all() or bucket == BUFFERS_AT


def _wait_for_the_end(world: World, rank: int) -> None:
    """Read the rank's rounds; the last one of the cycle must not come."""
    client = world.clients[rank]
    while not client.ends_cycle(end := client.wait_round(20)):
        assert end.cycle == Cycle(1)
    raise AssertionError("the cycle ended")


@pytest.mark.parametrize("wire", ["f32", "bf16"])
@pytest.mark.parametrize("index", range(PARAMS_BUCKETS))
def test_a_save_in_the_middle_of_a_round_holds_the_commit_before_it(
    build: Build, index: int, wire: str
) -> None:
    world = build("fake", wire)
    seen: list[tuple[int, bool, bool]] = []

    def save_at(frame: BucketFrame) -> None:
        if (frame.round, frame.index, frame.cycle) == (Round.PARAMS, index, 1):
            with world.root.begin_save(1) as view:
                params, buffers = view.params[:SIZE], view.buffers[:BUFFERS]
                whole = bool((params == FIRST).all()), bool((buffers == FIRST).all())
                seen.append((view.version, *whole))

    world.links["h1"][0].cut_rule = lambda frame: save_at(frame)
    begin(world)
    one = assert_one_consensus({rank: world.collect(1, rank) for rank in STEPS})
    assert seen == [(0, True, True)]
    assert (one.params[:SIZE] == WITH).all()
    assert_saved_is_committed(world, one, 1)
