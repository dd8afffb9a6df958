"""One contract for every layout and both links: local ranks, one relay, relays of 1 + 2, mixed."""

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from planes_world import Work, World, geometry_of, padding_of

from flodl_core.ids import Round, RoundOutcome
from flodl_core.reduce.mass import gamma_mass
from flodl_core.units import BUCKET_BYTES

LAYOUTS = {
    "local": ([[0, 1, 2]], True),
    "one relay": ([[0, 1, 2]], False),
    "relays of 1 and 2": ([[0], [1, 2]], False),
    "launcher and relay": ([[0, 1], [2]], True),
    "launcher and two relays": ([[0], [1], [2]], True),
}

Build = Callable[..., World]


CASES = [("local", "no link")]
CASES += [(layout, link) for layout in LAYOUTS for link in ("fake", "mux") if layout != "local"]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}, {case[1]}")
def build(request: pytest.FixtureRequest) -> Iterator[Build]:
    layout, link = request.param
    hosts, local = LAYOUTS[layout]
    made: list[World] = []

    def make(**shape: object) -> World:
        world = World(geometry_of(**shape), hosts, local, link)
        made.append(world)
        return world

    yield make
    for world in made:
        world.close()


def values(world: World, seed: int) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(seed)
    shape = world.geometry
    regions = ((shape.params, shape.params_numel), (shape.buffers, shape.buffers_numel))
    made = {}
    for rank in range(world.world_size):
        drawn = []
        for parts, numel in regions:
            region = random.standard_normal(numel).astype(np.float32)
            region[padding_of(parts, numel)] = 0
            drawn.append(region)
        made[rank] = tuple(drawn)
    return made


def assert_identical(adopted: dict) -> None:
    first, *others = adopted.values()
    for other in others:
        np.testing.assert_array_equal(first.params, other.params)
        np.testing.assert_array_equal(first.buffers, other.buffers)
        assert other.ends == first.ends


def assert_inside_bound(result: np.ndarray, masses: list[float], rows: list[np.ndarray]) -> None:
    """Against f64, whose own error is far below the bound."""
    total = sum(masses)
    wide = [row.astype(np.float64) for row in rows]
    exact = sum(mass * row for mass, row in zip(masses, wide, strict=True)) / total
    size = sum(mass * abs(row) for mass, row in zip(masses, wide, strict=True)) / total
    bound = (len(masses) + 4) * 2.0**-24 * size + 2.0**-149 * (1 + len(masses) / total)
    assert (abs(result - exact) <= bound).all()


def test_ranks_with_1_2_4_after_1_10_100_steps_meet_at_421_over_111(build: Build) -> None:
    world = build(params=[5, 40], buffers=[3])
    steps = {0: (1, 1.0), 1: (10, 2.0), 2: (100, 4.0)}
    works = {rank: Work(n, value, value) for rank, (n, value) in steps.items()}
    world.run(0, works)
    adopted = world.run(1, works)
    assert_identical(adopted)
    exact = np.float32(421 / 111)
    assert (abs(adopted[0].params[:5] - exact) <= np.spacing(exact)).all()
    assert adopted[0].ends[Round.PARAMS].mass == 111
    assert (adopted[0].buffers[:3] == np.float32(7 / 3)).all()


def test_with_gamma_0_the_movers_weigh_the_same(build: Build) -> None:
    world = build(params=[5])
    works = {0: Work(1, 1.0), 1: Work(10, 2.0), 2: Work(100, 4.0)}
    adopted = world.run(0, works, gamma=0.0)
    assert_identical(adopted)
    assert (adopted[0].params[:5] == np.float32(7 / 3)).all()


@pytest.mark.parametrize("gamma", [1.0, 0.5, -1.0, -8.0])
def test_the_consensus_is_inside_the_bound_and_identical_everywhere(
    build: Build, gamma: float
) -> None:
    world = build(params=[1000, 3, 70_000], buffers=[100])
    brought = values(world, 1)
    counts = {0: 3, 1: 17, 2: 1}
    works = {rank: Work(counts[rank], *brought[rank]) for rank in brought}
    adopted = world.run(0, works, gamma)
    assert_identical(adopted)
    masses = [gamma_mass(counts[rank], gamma) for rank in brought]
    assert_inside_bound(adopted[0].params, masses, [one[0] for one in brought.values()])
    assert_inside_bound(adopted[0].buffers, [1, 1, 1], [one[1] for one in brought.values()])


def test_an_idle_rank_contributes_nothing_not_even_nan_and_adopts(build: Build) -> None:
    world = build(params=[33], buffers=[2])
    works = {0: Work(2, 3.0, 1.0), 1: Work(0, np.nan, np.nan, samples=0), 2: Work(2, 5.0, 2.0)}
    adopted = world.run(0, works)
    assert_identical(adopted)
    assert (adopted[1].params[:33] == 4).all()
    assert (adopted[1].buffers[:2] == 1.5).all()
    assert adopted[1].ends[Round.PARAMS].ranks_accepted == (0, 2)
    assert adopted[1].ends[Round.CONTROL].ranks_accepted == (0, 1, 2)


def test_when_all_are_idle_the_cycle_ends_with_the_control_round(build: Build) -> None:
    world = build(params=[33], buffers=[2])
    world.run(0, {rank: Work(int(rank == 0), float(rank), 0.0) for rank in range(3)})
    adopted = world.run(1, {rank: Work(0, 7.0, 7.0) for rank in range(3)})
    for one in adopted.values():
        assert list(one.ends) == [Round.CONTROL]
        assert one.ends[Round.CONTROL].outcome is RoundOutcome.UNREALIZED
        assert one.ends[Round.CONTROL].mass == 0
        assert (one.params[:33] == 0).all()
    again = world.run(2, {rank: Work(1, 9.0, 9.0) for rank in range(3)})
    assert (again[2].params[:33] == 9).all()


def test_a_rank_that_declares_non_finite_values_is_left_out_and_named(build: Build) -> None:
    world = build(params=[20], buffers=[4])
    works = {
        0: Work(4, 1.0, 1.0, samples=32),
        1: Work(4, np.inf, np.nan, samples=40, declared=True),
        2: Work(4, 2.0, 3.0, samples=48),
    }
    adopted = world.run(0, works)
    assert_identical(adopted)
    assert (adopted[1].params[:20] == 1.5).all()
    assert (adopted[1].buffers[:4] == 2).all()
    said = {one.rank: (one.n, one.samples, one.declared) for one in adopted[0].tallies}
    assert said == {0: (4, 32, False), 1: (0, 40, True), 2: (4, 48, False)}
    params_end = next(one for one in world.ended if one.round is Round.PARAMS)
    assert params_end.ranks_accepted == (0, 2)
    assert params_end.tallies == adopted[0].tallies


def test_all_ranks_declaring_changes_nothing(build: Build) -> None:
    world = build(params=[20])
    world.run(0, {rank: Work(1, 3.0) for rank in range(3)})
    adopted = world.run(1, {rank: Work(5, np.nan, declared=True) for rank in range(3)})
    assert all(list(one.ends) == [Round.CONTROL] for one in adopted.values())
    assert all(one.declared for one in adopted[0].tallies)
    assert (adopted[0].params[:20] == 3).all()


def test_frozen_parameters_travel_in_cycle_0_and_when_a_rank_unfroze_them(build: Build) -> None:
    world = build(params=[20, 50, 20], frozen=[1])
    middle = slice(32, 82)
    adopted = world.run(0, {rank: Work(int(rank == 0), float(rank + 5)) for rank in range(3)})
    assert (adopted[2].params[middle] == 5).all()
    for cycle in (1, 2, 3):
        adopted = world.run(cycle, {rank: Work(1, 100.0 * cycle + rank) for rank in range(3)})
        assert_identical(adopted)
        assert (adopted[2].params[middle] == 5).all()
        assert (adopted[0].params[:20] == np.float32(100 * cycle + 1)).all()
        assert (adopted[0].params[96:116] == np.float32(100 * cycle + 1)).all()
        assert [tuple(span) for span in adopted[0].spans] == [(0, 20), (96, 20)]
    thawed = {rank: Work(1, 10.0, unfrozen=[True, rank == 2, True]) for rank in range(3)}
    adopted = world.run(4, thawed)
    assert (adopted[0].params[middle] == 10).all()
    for cycle in (5, 6):
        adopted = world.run(cycle, {rank: Work(1, 20.0) for rank in range(3)})
        assert_identical(adopted)
        assert (adopted[0].params[middle] == 10).all()


def test_a_model_that_is_frozen_whole_still_ends_its_rounds(build: Build) -> None:
    world = build(params=[20], buffers=[4], frozen=[0])
    world.run(0, {rank: Work(int(rank == 0), 2.0, 3.0) for rank in range(3)})
    adopted = world.run(1, {rank: Work(1, 9.0, float(rank)) for rank in range(3)})
    assert_identical(adopted)
    assert adopted[0].ends[Round.PARAMS].outcome is RoundOutcome.COMMITTED
    assert adopted[0].ends[Round.PARAMS].ranks_accepted == (0, 1, 2)
    assert (adopted[0].params[:20] == 2).all()
    assert (adopted[0].buffers[:4] == 1).all()


def test_a_model_of_empty_tensors_only_is_served_too(build: Build) -> None:
    world = build(params=[0])
    adopted = world.run(0, {rank: Work(rank) for rank in range(3)})
    assert adopted[0].ends[Round.PARAMS].mass == 3


@pytest.mark.slow
def test_several_buckets_of_several_runs_arrive_where_they_belong(build: Build) -> None:
    """Two and a half buckets, cut by a frozen segment so that one bucket has two runs."""
    third = BUCKET_BYTES // 4 * 5 // 6
    world = build(params=[third, 48, third, third], frozen=[1])
    brought = values(world, 3)
    world.run(0, {rank: Work(int(rank == 0), brought[rank][0]) for rank in range(3)})
    counts = {0: 2, 1: 3, 2: 4}
    adopted = world.run(1, {rank: Work(counts[rank]) for rank in range(3)})
    assert_identical(adopted)
    active = np.ones(world.geometry.params_numel, bool)
    frozen = world.geometry.params[1]
    active[frozen.offset : frozen.offset + frozen.numel] = False
    assert_inside_bound(
        adopted[0].params[active],
        list(map(float, counts.values())),
        [one[0][active] for one in brought.values()],
    )
    np.testing.assert_array_equal(adopted[0].params[~active], brought[0][0][~active])


def test_the_coordinator_hears_of_each_round_before_any_rank(build: Build) -> None:
    world = build(params=[8], buffers=[8])
    seen = []
    world.on_round_ended = lambda ended: seen.append(
        [rank for rank, client in world.clients.items() if _has_something_to_read(client.fileno())]
    )
    world.ready(0, 0, Work(1, 1.0, 1.0))
    world.ready(0, 1, Work(1, 1.0, 1.0))
    world.ready(0, 2, Work(1, 1.0, 1.0))
    for rank in range(3):
        world.collect(0, rank)
    assert seen[0] == []
    assert [one.round for one in world.ended] == [Round.CONTROL, Round.PARAMS, Round.BUFFERS]


def test_the_same_inputs_give_the_same_bits_again(build: Build) -> None:
    results = []
    for _ in range(2):
        world = build(params=[5000])
        brought = values(world, 9)
        works = {rank: Work(rank + 1, brought[rank][0]) for rank in range(3)}
        results.append(world.run(0, works)[1].params)
    np.testing.assert_array_equal(*results)


def test_the_tree_is_rank_then_host_then_root(build: Build) -> None:
    """Values whose sum depends on the order show which order it was."""
    world = build(params=[1])
    rows = [np.float32(1e8), np.float32(3.3), np.float32(-1e8)]
    hosts = [list(one.ranks) for one in world.envelope.hosts]
    adopted = world.run(0, {rank: Work(1, rows[rank]) for rank in range(3)})
    subtotals = []
    for ranks in hosts:
        total = rows[ranks[0]]
        for rank in ranks[1:]:
            total = np.float32(total + rows[rank])
        subtotals.append(total)
    total = subtotals[0]
    for subtotal in subtotals[1:]:
        total = np.float32(total + subtotal)
    assert adopted[0].params[0] == np.float32(total / np.float32(3))
    assert Fraction(float(adopted[0].params[0])) == Fraction(float(adopted[2].params[0]))


def _has_something_to_read(fd: int) -> bool:
    import select

    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
