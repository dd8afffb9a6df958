"""The bf16 wire: differences from the last commit, rounded once a host and once at the root."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytest
from planes_world import Adopted, Work, World, geometry_of, padding_of, wait_until

from flodl_core.errors import RunLostError
from flodl_core.ids import Round, RoundOutcome
from flodl_core.messages.data import BucketFrame
from flodl_core.units import BUCKET_BYTES

BUCKET = BUCKET_BYTES // 4
LAYOUTS = {
    "local": ([[0, 1, 2]], True),
    "one relay": ([[0, 1, 2]], False),
    "relays of 1 and 2": ([[0], [1, 2]], False),
    "launcher and relay": ([[0, 1], [2]], True),
    "launcher and two relays": ([[0], [1], [2]], True),
}
CASES = [(layout, link) for layout in LAYOUTS for link in ("fake", "mux")]

Build = Callable[..., World]


@pytest.fixture
def build() -> Iterator[Build]:
    made: list[World] = []

    def make(
        hosts: Sequence[Sequence[int]], local: bool = True, link: str = "fake", **shape: object
    ) -> World:
        made.append(World(geometry_of(**shape), hosts, local, link, wire="bf16"))
        return made[-1]

    yield make
    for world in made:
        world.close()


def assert_identical(adopted: Mapping[int, Adopted]) -> np.ndarray:
    first, *others = adopted.values()
    for other in others:
        np.testing.assert_array_equal(first.params, other.params)
        np.testing.assert_array_equal(first.buffers, other.buffers)
        assert other.ends == first.ends
    return first.params


def assert_inside_bound(
    world: World,
    result: np.ndarray,
    committed: np.ndarray,
    steps: Mapping[int, int],
    rows: Mapping[int, np.ndarray],
) -> None:
    """Half a unit of bf16 for each host's subtotal and one for the mean; else as f32."""
    total = float(sum(steps.values()))
    c = committed.astype(np.float64)
    apart = {rank: steps[rank] * (rows[rank].astype(np.float64) - c) for rank in rows}
    mean = sum(apart.values()) / total
    subtotals = sum(abs(sum(apart[rank] for rank in ranks)) for ranks in world.hosts) / total
    size = sum(abs(one) for one in apart.values()) / total
    rounding = 2.0**-8 * (subtotals + abs(mean)) * (1 + 2.0**-7)
    bound = rounding + (len(rows) + 4) * 2.0**-24 * size + 2.0**-24 * abs(c + mean) + 2.0**-130
    assert (abs(result - (c + mean)) <= bound).all()


def drawn(world: World, seed: int, scale: float, around: np.ndarray | float = 0.0) -> dict:
    random = np.random.default_rng(seed)
    shape = world.geometry
    padding = padding_of(shape.params, shape.params_numel)
    rows = {}
    for rank in range(world.world_size):
        noise = scale * random.standard_normal(shape.params_numel)
        rows[rank] = np.where(padding, 0, around + noise).astype(np.float32)
    return rows


@pytest.mark.parametrize(("layout", "link"), CASES)
def test_each_cycle_is_inside_the_bound_and_identical_everywhere(
    build: Build, layout: str, link: str
) -> None:
    world = build(*LAYOUTS[layout], link, params=[1000, 3, 70_000], buffers=[100])
    steps = {0: 3, 1: 17, 2: 1}
    rows = drawn(world, 0, 1.0)
    committed = assert_identical(
        world.run(0, {rank: Work(int(rank == 0), rows[rank], 1.0) for rank in rows})
    )
    np.testing.assert_array_equal(committed, rows[0])
    for cycle in range(1, 5):
        rows = drawn(world, cycle, 10.0**-cycle, committed)
        adopted = world.run(cycle, {rank: Work(steps[rank], rows[rank], 1.0) for rank in rows})
        result = assert_identical(adopted)
        assert_inside_bound(world, result, committed, steps, rows)
        committed = result


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_first_round_has_the_bits_of_the_f32_wire(build: Build, layout: str) -> None:
    world = build(*LAYOUTS[layout], params=[300])
    wide = World(geometry_of([300]), *LAYOUTS[layout])
    rows = drawn(world, 5, 1.0)
    works = {rank: Work(rank + 1, rows[rank]) for rank in rows}
    result, expected = (assert_identical(one.run(0, works)) for one in (world, wide))
    np.testing.assert_array_equal(result, expected)
    wide.close()


def test_updates_far_below_the_digits_of_bf16_survive(build: Build) -> None:
    """Steps of 2⁻²⁰ of values of 1: bf16 has nothing between 1 and 1 + 2⁻⁷."""
    world = build([[0], [1, 2]], params=[50])
    world.run(0, {rank: Work(1, 1.0) for rank in range(3)})
    step = 2.0**-20
    for cycle in range(1, 9):
        adopted = world.run(cycle, {rank: Work(1, 1.0 + cycle * step) for rank in range(3)})
        assert (adopted[2].params[:50] == np.float32(1.0 + cycle * step)).all()


@pytest.mark.slow
def test_64_ranks_behind_8_relays_stay_inside_one_rounding_of_the_difference(build: Build) -> None:
    hosts = [list(range(at, at + 8)) for at in range(0, 64, 8)]
    world = build(hosts, False, params=[5000])
    committed = np.zeros(world.geometry.params_numel, np.float32)
    random = np.random.default_rng(1)
    steps = {rank: 1 + rank % 7 for rank in range(64)}
    values = slice(0, 5000)
    for cycle in range(3):
        common = random.standard_normal(committed.size).astype(np.float32)
        rows = drawn(world, 10 + cycle, 1e-4, committed + np.float32(1e-3) * common)
        adopted = world.run(cycle, {rank: Work(steps[rank], rows[rank]) for rank in rows})
        result = assert_identical(adopted)
        if cycle > 0:
            assert_inside_bound(world, result, committed, steps, rows)
            wide = {rank: row.astype(np.float64) for rank, row in rows.items()}
            mean = sum(steps[rank] * row for rank, row in wide.items()) / sum(steps.values())
            error = abs(result - mean)[values] - 2.0**-24 * abs(mean)[values]
            rounding = 2.0**-8 * abs(mean - committed)[values]
            assert np.linalg.norm(np.maximum(error, 0)) <= 0.5 * np.linalg.norm(rounding)
            assert np.mean(error <= rounding) > 0.98
        committed = result


def test_buffers_travel_whole_so_that_a_variance_never_falls_below_zero(build: Build) -> None:
    world = build([[0], [1]], params=[4], buffers=[6])
    world.run(0, {rank: Work(1, 0.0, 1.0) for rank in range(2)})
    adopted = world.run(1, {rank: Work(1, 0.0, 1e-6) for rank in range(2)})
    assert (adopted[1].buffers[:6] == np.float32(1e-6)).all()


def test_half_the_bytes_cross_between_hosts_after_the_first_cycle(build: Build) -> None:
    world = build([[0], [1, 2]], params=[16_000])
    counted = []
    for cycle in range(3):
        before = world.root.moved_bytes
        world.run(cycle, {rank: Work(1, float(rank)) for rank in range(3)})
        counted.append(world.root.moved_bytes - before)
    control = 2 * (3 * 3 + 1) * 8
    assert [count - count % 100 for count in counted] == [128_000, 64_000, 64_000]
    assert all(count % 100 <= control for count in counted)


def test_idle_declared_and_frozen_parts_are_as_on_the_f32_wire(build: Build) -> None:
    world = build([[0], [1, 2]], params=[20, 50, 20], frozen=[1])
    middle = slice(32, 82)
    world.run(0, {rank: Work(int(rank == 0), float(rank + 5)) for rank in range(3)})
    works = {0: Work(2, 7.0), 1: Work(0, np.nan), 2: Work(9, np.inf, declared=True)}
    result = assert_identical(world.run(1, works))
    assert (result[:20] == 7).all()
    assert (result[middle] == 5).all()
    unrealized = world.run(2, {rank: Work(0, 1.0) for rank in range(3)})
    assert list(unrealized[2].ends) == [Round.CONTROL]
    thawed = {rank: Work(1, 9.0, unfrozen=[True, rank == 2, True]) for rank in range(3)}
    assert (assert_identical(world.run(3, thawed))[middle] == 9).all()


@pytest.mark.slow
def test_buckets_of_several_runs_are_subtracted_where_they_lie(build: Build) -> None:
    third = BUCKET * 5 // 6
    world = build([[0], [1], [2]], params=[third, 48, third, third], frozen=[1])
    rows = drawn(world, 3, 1.0)
    committed = assert_identical(
        world.run(0, {rank: Work(int(rank == 0), rows[rank]) for rank in rows})
    )
    steps = {0: 2, 1: 3, 2: 4}
    rows = drawn(world, 4, 0.01, committed)
    frozen = world.geometry.params[1]
    inside = slice(frozen.offset, frozen.offset + frozen.numel)
    result = assert_identical(world.run(1, {rank: Work(steps[rank], rows[rank]) for rank in rows}))
    for row in rows.values():
        row[inside] = committed[inside]
    assert_inside_bound(world, result, committed, steps, rows)
    np.testing.assert_array_equal(result[inside], committed[inside])


def cut_at(index: int, where: str) -> Callable[[BucketFrame], str | None]:
    def rule(frame: BucketFrame) -> str | None:
        is_there = (frame.round, frame.index, frame.cycle) == (Round.PARAMS, index, 1)
        return where if is_there else None

    return rule


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "within"])
@pytest.mark.parametrize("index", range(4))
def test_a_link_that_breaks_costs_its_host_and_leaves_the_others_one_reference(
    build: Build, index: int, where: str
) -> None:
    size = BUCKET * 3 + BUCKET // 2
    world = build([[0], [1], [2]], params=[size])
    world.run(0, {rank: Work(int(rank == 0), 1.0) for rank in range(3)})
    lost = world.clients[1].staging.params
    world.links["h1"][0].cut_rule = cut_at(index, where)
    steps = {0: (1, 2.0), 1: (2, 8.0), 2: (1, 4.0)}
    for rank, (n, value) in steps.items():
        world.ready(1, rank, Work(n, value))
    adopted = {rank: world.collect(1, rank) for rank in (0, 2)}
    result = assert_identical(adopted)
    edge = index * BUCKET
    assert (result[:edge] == (2 + 16 + 4) / 4).all()
    assert (result[edge:size] == 3).all()
    with pytest.raises(RunLostError):
        world.collect(1, 1)
    assert (lost[:size] == 1).all()
    for cycle in (2, 3):
        again = world.run(cycle, {rank: Work(1, 5.0 + cycle) for rank in (0, 2)})
        assert (assert_identical(again)[:size] == 5 + cycle).all()


@pytest.mark.slow
def test_buckets_without_mass_keep_the_last_commit_on_every_host(build: Build) -> None:
    size = BUCKET * 3 + BUCKET // 2
    world = build([[0], [1], [2]], params=[size])
    world.run(0, {rank: Work(int(rank == 0), 6.0) for rank in range(3)})
    world.links["h1"][0].cut_rule = cut_at(2, "before")
    for rank in range(3):
        world.ready(1, rank, Work(int(rank == 1), 50.0 + rank))
    adopted = {rank: world.collect(1, rank) for rank in (0, 2)}
    result = assert_identical(adopted)
    assert (result[: 2 * BUCKET] == 51).all()
    assert (result[2 * BUCKET : size] == 6).all()
    again = world.run(2, {rank: Work(1, 7.0) for rank in (0, 2)})
    assert (assert_identical(again)[:size] == 7).all()


def test_a_round_that_realized_nothing_leaves_the_reference_where_it_was(build: Build) -> None:
    world = build([[0], [1], [2]], params=[9])
    world.run(0, {rank: Work(int(rank == 0), 6.0) for rank in range(3)})
    world.links["h1"][0].cut_rule = cut_at(0, "before")
    for rank in range(3):
        world.ready(1, rank, Work(int(rank == 1), 50.0))
    for rank in (0, 2):
        end = world.collect(1, rank).ends[Round.PARAMS]
        assert end.outcome is RoundOutcome.UNREALIZED
    again = world.run(2, {0: Work(1, 1.0), 2: Work(1, 4.0)})
    assert (assert_identical(again)[:9] == 2.5).all()


def test_a_root_and_a_relay_of_different_wires_part_at_the_first_narrow_bucket(
    build: Build,
) -> None:
    world = build([[0], [1]], params=[9])
    world.relays["h1"]._wire = type(world.relays["h1"]._wire)("f32")
    world.run(0, {rank: Work(1, 1.0) for rank in range(2)})
    world.ready(1, 0, Work(1, 3.0))
    world.ready(1, 1, Work(1, 9.0))
    assert (world.collect(1, 0).params[:9] == 3).all()
    wait_until(lambda: "h1" in world.relay_ends)
    assert "expected bucket 0" in str(world.notes[0].fields["reason"])
