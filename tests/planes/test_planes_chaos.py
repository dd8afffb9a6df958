"""Random worlds, random deaths and cuts: always ends, survivors identical, sums add up."""

import random
from collections.abc import Mapping

import numpy as np
import pytest
from planes_world import Adopted, Work, World, geometry_of

from flodl_core.errors import RunLostError
from flodl_core.ids import Rank, Round, RoundOutcome
from flodl_core.messages.data import BucketFrame


def random_hosts(rng: random.Random) -> list[list[int]]:
    sizes = [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
    hosts, at = [], 0
    for size in sizes:
        hosts.append(list(range(at, at + size)))
        at += size
    return hosts


def cut_rule(rng: random.Random, cycle: int) -> object:
    round_, where = rng.choice(list(Round)), rng.choice(["before", "within"])

    def rule(frame: BucketFrame) -> str | None:
        return where if (frame.cycle, frame.round) == (cycle, round_) else None

    return rule


def assert_consistent(
    adopted: Mapping[int, Adopted], values: Mapping[int, tuple], wire: str
) -> None:
    """All survivors have the same bits, and they are the mean over the ranks named as accepted."""
    first, *others = adopted.values()
    for other in others:
        assert other.ends == first.ends
        np.testing.assert_array_equal(other.params, first.params)
        np.testing.assert_array_equal(other.buffers, first.buffers)
    for round_, region in ((Round.PARAMS, first.params), (Round.BUFFERS, first.buffers)):
        end = first.ends.get(round_)
        if end is None or end.outcome is not RoundOutcome.COMMITTED:
            continue
        accepted = [values[rank] for rank in end.ranks_accepted]
        masses = [n if round_ is Round.PARAMS else 1 for n, _ in accepted]
        assert end.mass == sum(masses)
        total = sum(mass * value for mass, (_, value) in zip(masses, accepted, strict=True))
        is_narrow = wire == "bf16" and round_ is Round.PARAMS
        apart = 2 * 9 * 2.0**-8 if is_narrow else 0.0
        np.testing.assert_allclose(region[:40], total / end.mass, rtol=1e-6, atol=apart)


@pytest.mark.parametrize("seed", range(60))
def test_a_random_story_ends_well(seed: int) -> None:
    rng = random.Random(seed)
    hosts = random_hosts(rng)
    local = rng.random() < 0.6
    link, wire = rng.choice(["fake", "fake", "mux"]), rng.choice(["f32", "bf16"])
    world = World(geometry_of([40], [40]), hosts, local, link, wire)
    alive = [rank for ranks in hosts for rank in ranks]
    rng.shuffle(alive)
    for cycle in range(rng.randint(2, 6)):
        if world.link == "fake" and world.links and rng.random() < 0.4:
            host = rng.choice(list(world.links))
            world.links[host][0].cut_rule = cut_rule(rng, cycle)
        values = {rank: (rng.choice([0, 1, 1, 3]), float(rng.randint(1, 9))) for rank in alive}
        late = rng.choice(alive) if len(alive) > 1 and rng.random() < 0.3 else None
        early = rng.choice(alive) if len(alive) > 1 and rng.random() < 0.3 else None
        for rank in list(alive):
            if rank == late:
                world.root.declare_dead(Rank(rank))
                world.leave(rank)
                alive.remove(rank)
                continue
            n, value = values[rank]
            try:
                world.ready(cycle, rank, Work(n, value, value))
            except RunLostError:
                alive.remove(rank)
                continue
            if rank == early:
                world.leave(rank)
                alive.remove(rank)
                world.root.declare_dead(Rank(rank))
        adopted = {}
        for rank in list(alive):
            try:
                adopted[rank] = world.collect(cycle, rank)
            except RunLostError:
                alive.remove(rank)
                world.root.declare_dead(Rank(rank))
        if not adopted:
            break
        assert_consistent(adopted, values, wire)
    world.close()
