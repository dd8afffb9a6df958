"""An outer optimizer at the root: what is stepped, when it counts, and what it leaves alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytest
from planes_world import Adopted, Work, World, geometry_of

from flodl_core.ids import OuterKind, Round, RoundOutcome
from flodl_core.messages.job import OuterSpec
from flodl_core.planes.consensus import Beginning
from flodl_core.planes.velocity import OuterState
from flodl_core.units import BUCKET_BYTES

BUCKET = BUCKET_BYTES // 4
SLOWMO = OuterSpec(kind=OuterKind.SLOWMO, lr=0.5, momentum=0.5)
NESTEROV = OuterSpec(kind=OuterKind.NESTEROV, lr=0.7, momentum=0.9)
LAYOUTS = {
    "local": ([[0, 1, 2]], True),
    "relays of 1 and 2": ([[0], [1, 2]], False),
    "launcher and two relays": ([[0], [1], [2]], True),
}

Build = Callable[..., World]


@pytest.fixture
def build() -> Iterator[Build]:
    made: list[World] = []

    def make(
        outer: OuterSpec,
        hosts: Sequence[Sequence[int]],
        local: bool = True,
        *,
        wire: str = "f32",
        beginning: Beginning | None = None,
        **shape: object,
    ) -> World:
        geometry = geometry_of(**shape)
        made.append(World(geometry, hosts, local, wire=wire, beginning=beginning, outer=outer))
        return made[-1]

    yield make
    for world in made:
        world.close()


def same(adopted: Mapping[int, Adopted]) -> np.ndarray:
    """What all of them adopted, bit by bit."""
    first, *others = adopted.values()
    for other in others:
        assert first.params.tobytes() == other.params.tobytes()
        assert first.buffers.tobytes() == other.buffers.tobytes()
    return first.params


def by_hand(outer: OuterSpec, means: Sequence[float]) -> list[float]:
    """What follows the first of the means, which is taken as it is; each later one is stepped."""
    x, v, seen = means[0], 0.0, [means[0]]
    for mean in means[1:]:
        g = x - mean
        v = outer.momentum * v + g
        down = v if outer.kind is OuterKind.SLOWMO else outer.momentum * v + g
        x = x - outer.lr * down
        seen.append(x)
    return seen


@pytest.mark.parametrize("wire", ["f32", "bf16"])
@pytest.mark.parametrize("outer", [SLOWMO, NESTEROV])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_averages_are_stepped_from_the_second_on_and_everybody_adopts_the_same(
    build: Build, layout: str, outer: OuterSpec, wire: str
) -> None:
    world = build(outer, *LAYOUTS[layout], wire=wire, params=[100, 3], buffers=[4])
    assert (
        same(world.run(0, {rank: Work(int(rank == 0), 4.0, 9.0) for rank in range(3)})) >= 0
    ).all()
    means = [3.0, 2.0, 2.5, 0.0, 1.0]
    expected = by_hand(outer, means)
    for cycle, (mean, value) in enumerate(zip(means, expected, strict=True), 1):
        works = {0: Work(1, mean - 1, mean), 1: Work(2, mean + 2, mean), 2: Work(3, mean - 1, mean)}
        adopted = world.run(cycle, works)
        result = same(adopted)[:100]
        room = 1e-6 * 8 if wire == "f32" else 0.05
        assert np.abs(result - value).max() <= room
        np.testing.assert_allclose(adopted[0].buffers[:4], mean, rtol=1e-6)


def test_the_plain_average_is_what_a_run_without_an_outer_optimizer_has(build: Build) -> None:
    stepped = build(OuterSpec(kind=OuterKind.SLOWMO, lr=1.0, momentum=0.0), [[0], [1]], params=[9])
    plain = World(geometry_of([9]), [[0], [1]])
    for world in (stepped, plain):
        for cycle in range(3):
            adopted = world.run(cycle, {0: Work(1, 2.0 + cycle), 1: Work(3, 1.0)})
        assert (same(adopted)[:9] == (4.0 + 3.0) / 4).all()
    plain.close()


def test_a_cycle_without_mass_changes_neither_parameters_nor_velocity(build: Build) -> None:
    runs = []
    for has_idle_cycle in (False, True):
        world = build(NESTEROV, [[0], [1]], params=[9])
        world.run(0, {0: Work(1, 5.0), 1: Work(0, 5.0)})
        world.run(1, {0: Work(1, 4.0), 1: Work(1, 4.0)})
        world.run(2, {0: Work(1, 3.0), 1: Work(1, 3.0)})
        if has_idle_cycle:
            world.run(3, {rank: Work(0, 77.0) for rank in range(2)})
        runs.append(same(world.run(4, {0: Work(1, 2.0), 1: Work(1, 2.0)})).tobytes())
    assert runs[0] == runs[1]


def test_frozen_parameters_are_not_stepped_and_begin_at_rest_when_they_thaw(build: Build) -> None:
    world = build(SLOWMO, [[0], [1]], params=[20, 50, 20], frozen=[1])
    middle = slice(32, 82)
    world.run(0, {0: Work(1, 8.0), 1: Work(0, 8.0)})
    for cycle, mean in ((1, 6.0), (2, 4.0)):
        result = same(world.run(cycle, {rank: Work(1, mean) for rank in range(2)}))
        assert (result[middle] == 8).all()
    thawed = {rank: Work(1, 2.0, unfrozen=[True, rank == 1, True]) for rank in range(2)}
    result = same(world.run(3, thawed))
    assert (result[middle] == 8 - 0.5 * (8 - 2)).all()
    assert result[0] == by_hand(SLOWMO, [6.0, 4.0, 2.0])[-1]


def cut_at(index: int, cycle: int) -> Callable[[object], str | None]:
    def rule(frame: object) -> str | None:
        place = (frame.round, frame.index, frame.cycle)
        return "before" if place == (Round.PARAMS, index, cycle) else None

    return rule


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["f32", "bf16"])
def test_a_bucket_without_mass_keeps_its_values_and_its_velocity(build: Build, wire: str) -> None:
    """In cycle 3 only rank 1 moved, and its link breaks before its last bucket."""
    size = BUCKET + 1000
    world = build(SLOWMO, [[0], [1], [2]], wire=wire, params=[size])
    world.run(0, {rank: Work(int(rank == 0), 8.0) for rank in range(3)})
    world.run(1, {rank: Work(1, 8.0) for rank in range(3)})
    world.run(2, {rank: Work(1, 4.0) for rank in range(3)})
    world.links["h1"][0].cut_rule = cut_at(1, 3)
    for rank in range(3):
        world.ready(3, rank, Work(int(rank == 1), 2.0))
    result = same({rank: world.collect(3, rank) for rank in (0, 2)})
    x = by_hand(SLOWMO, [8.0, 4.0, 2.0, 2.0])
    assert (result[:BUCKET] == x[2]).all()
    assert (result[BUCKET:size] == x[1]).all()
    result = same(world.run(4, {rank: Work(1, 2.0) for rank in (0, 2)}))
    assert (result[:BUCKET] == x[3]).all()
    assert (result[BUCKET:size] == x[2]).all()


def test_a_round_that_did_not_commit_takes_its_velocity_back(build: Build) -> None:
    world = build(SLOWMO, [[0], [1], [2]], params=[9])
    world.run(0, {rank: Work(int(rank == 0), 8.0) for rank in range(3)})
    world.run(1, {rank: Work(1, 8.0) for rank in range(3)})
    world.run(2, {rank: Work(1, 4.0) for rank in range(3)})
    world.links["h1"][0].cut_rule = cut_at(0, 3)
    for rank in range(3):
        world.ready(3, rank, Work(int(rank == 1), 50.0))
    for rank in (0, 2):
        end = world.collect(3, rank).ends[Round.PARAMS]
        assert end.outcome is RoundOutcome.UNREALIZED
    result = same(world.run(4, {0: Work(1, 1.0), 2: Work(1, 3.0)}))
    assert (result[:9] == by_hand(SLOWMO, [8.0, 4.0, 2.0])[-1]).all()


@pytest.mark.parametrize("wire", ["f32", "bf16"])
def test_a_step_that_is_not_finite_is_the_plain_average_and_begins_again(
    build: Build, wire: str
) -> None:
    """A velocity of 3e38 and another step of the same size leave f32 together."""
    outer = OuterSpec(kind=OuterKind.SLOWMO, lr=0.25, momentum=0.75)
    world = build(outer, [[0], [1]], wire=wire, params=[9])
    large = np.zeros(world.geometry.params_numel, np.float32)
    large[:9] = 1.5e38
    world.run(0, {0: Work(1, large), 1: Work(0, large)})
    world.run(1, {0: Work(1, large), 1: Work(0)})
    world.run(2, {0: Work(1, -large), 1: Work(0)})
    assert [end.unstepped_buckets for end in world.ended] == [0] * len(world.ended)
    result = same(world.run(3, {0: Work(1, -large), 1: Work(0)}))
    told = [end for end in world.ended if end.unstepped_buckets]
    assert [(end.cycle, end.round, end.unstepped_buckets) for end in told] == [(3, Round.PARAMS, 1)]
    np.testing.assert_allclose(result[:9], -1.5e38, rtol=2.0**-7)
    again = same(world.run(4, {rank: Work(1, 0.0) for rank in range(2)}))
    np.testing.assert_allclose(again[:9], result[:9] * 0.75, rtol=2.0**-7)


def test_a_save_holds_the_velocity_of_its_version_still(build: Build) -> None:
    world = build(SLOWMO, [[0], [1]], params=[9])
    world.run(0, {rank: Work(1, 8.0) for rank in range(2)})
    with world.root.begin_save(0) as view:
        assert view.outer == OuterState(None, steps_next=False)
    world.run(1, {rank: Work(1, 8.0) for rank in range(2)})
    with world.root.begin_save(1) as view:
        assert view.outer == OuterState(None, steps_next=True)
    world.run(2, {rank: Work(1, 4.0) for rank in range(2)})
    view = world.root.begin_save(2)
    world.run(3, {rank: Work(1, 0.0) for rank in range(2)})
    assert view.outer.velocity[:9].tolist() == [4.0] * 9
    assert view.params[:9].tolist() == [6.0] * 9
    for rank in range(2):
        world.ready(4, rank, Work(1, 1.0))
    assert world.clients[0].wait_round(20).round is Round.CONTROL
    with pytest.raises(TimeoutError):
        world.clients[0].wait_round(0.1)
    with pytest.raises(ValueError, match="read-only"):
        view.outer.velocity[0] = 1
    view.release()
    for rank in range(2):
        world.collect(4, rank)


@pytest.mark.parametrize("wire", ["f32", "bf16"])
@pytest.mark.parametrize("saved_at", [1, 2, 4])
def test_a_run_that_goes_on_from_a_save_has_the_bits_of_one_that_never_stopped(
    build: Build, saved_at: int, wire: str
) -> None:
    def works(cycle: int) -> dict[int, Work]:
        rng = np.random.default_rng(cycle)
        rows = rng.normal(size=(2, shape["params"][0] + 8)).astype(np.float32)
        return {rank: Work(rank + 1, rows[rank]) for rank in range(2)}

    shape = {"params": [40]}
    world = build(NESTEROV, [[0], [1]], wire=wire, **shape)
    world.run(0, {rank: Work(int(rank == 0), 1.0) for rank in range(2)})
    for cycle in range(1, saved_at + 1):
        world.run(cycle, works(cycle))
    with world.root.begin_save(saved_at) as view:
        velocity = view.outer.velocity
        kept = Beginning(
            {Round.PARAMS: view.params.copy()},
            OuterState(velocity if velocity is None else velocity.copy(), view.outer.steps_next),
        )
    resumed = build(NESTEROV, [[0], [1]], wire=wire, beginning=kept, **shape)
    resumed.run(0, {rank: Work(int(rank == 0), 7.0) for rank in range(2)})
    for cycle in range(saved_at + 1, saved_at + 4):
        went_on = same(world.run(cycle, works(cycle)))
        assert same(resumed.run(cycle, works(cycle))).tobytes() == went_on.tobytes()
