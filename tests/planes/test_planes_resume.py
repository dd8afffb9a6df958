"""The initial broadcast of a resumed run brings the saved values to everybody, bit by bit."""

import numpy as np
import pytest
from planes_world import Work, World, geometry_of

from flodl_core.ids import Round
from flodl_core.planes.consensus import Beginning

GEOMETRY = geometry_of([20, 30], [5], frozen=[1])


def saved(seed=3):
    """Values that no sum and no division would leave as they are."""
    rng = np.random.default_rng(seed)
    params = np.zeros(GEOMETRY.params_numel, np.float32)
    for part in GEOMETRY.params:
        params[part.offset : part.offset + part.numel] = rng.normal(size=part.numel) * 1e-3
    return {Round.PARAMS: params, Round.BUFFERS: rng.normal(size=5).astype(np.float32)}


@pytest.mark.parametrize("wire", ["f32", "bf16"])
@pytest.mark.parametrize("hosts", [[[0, 1]], [[0], [1, 2]], [[0, 1], [2]]])
def test_every_rank_adopts_the_saved_values_and_rank_0_too(hosts, wire):
    initial = saved()
    world = World(GEOMETRY, hosts, beginning=Beginning(initial), wire=wire)
    ranks = range(world.world_size)
    try:
        adopted = world.run(0, {rank: Work(int(rank == 0), 7.0, 7.0) for rank in ranks})
        for rank in ranks:
            assert adopted[rank].params.tobytes() == initial[Round.PARAMS].tobytes()
            assert adopted[rank].buffers[:5].tobytes() == initial[Round.BUFFERS].tobytes()
        with world.root.begin_save(0) as view:
            assert view.params.tobytes() == initial[Round.PARAMS].tobytes()
    finally:
        world.close()


def test_the_cycle_after_it_is_an_average_again_whatever_its_number():
    world = World(GEOMETRY, [[0], [1]], beginning=Beginning(saved()))
    try:
        world.run(0, {0: Work(1, 7.0, 7.0), 1: Work(0, 9.0, 9.0)})
        adopted = world.run(41, {0: Work(1, 1.0, 1.0), 1: Work(1, 3.0, 3.0)})
        assert (adopted[1].params[:20] == 2).all()
        frozen = saved()[Round.PARAMS][32:62]
        assert adopted[1].params[32:62].tobytes() == frozen.tobytes()
        with world.root.begin_save(41) as view:
            assert view.version == 41
    finally:
        world.close()


def test_nothing_changes_where_rank_0_did_not_take_part():
    world = World(GEOMETRY, [[0], [1]], beginning=Beginning(saved()))
    try:
        world.run(0, {0: Work(0, 7.0, 7.0), 1: Work(0, 9.0, 9.0)})
        assert world.root.committed_version is None
    finally:
        world.close()
