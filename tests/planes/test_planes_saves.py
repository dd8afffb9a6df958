"""Saves hold the committed values still; training goes on around them as far as it can."""

from collections.abc import Iterator

import numpy as np
import pytest
from planes_world import Work, World, geometry_of, wait_until

from flodl_core.ids import Round


@pytest.fixture
def world() -> Iterator[World]:
    made = World(geometry_of([20, 30], [5], frozen=[1]), [[0], [1]])
    yield made
    made.close()


def works(value: float) -> dict[int, Work]:
    return {0: Work(1, value, value), 1: Work(1, value + 2, value + 2)}


def test_nothing_is_saved_before_the_first_commit(world: World) -> None:
    assert world.root.begin_save(0) is None
    assert world.root.committed_version is None


def test_a_save_sees_all_parameters_and_buffers_of_its_version(world: World) -> None:
    world.run(0, {0: Work(1, 7.0, 7.0), 1: Work(0, 9.0, 9.0)})
    world.run(1, works(1.0))
    with world.root.begin_save(1) as view:
        assert view.version == 1
        assert view.params[:20].tolist() == [2.0] * 20
        assert view.params[32:62].tolist() == [7.0] * 30
        assert view.buffers[:5].tolist() == [2.0] * 5
        with pytest.raises(ValueError, match="read-only"):
            view.params[0] = 1


def test_a_version_that_is_gone_is_not_given_out(world: World) -> None:
    world.run(0, works(1.0))
    world.run(1, works(3.0))
    assert world.root.begin_save(0) is None
    with world.root.begin_save(5) as view:
        assert view.version == 1


def test_a_cycle_without_a_commit_leaves_the_version(world: World) -> None:
    world.run(0, works(1.0))
    world.run(1, {rank: Work(0) for rank in (0, 1)})
    with world.root.begin_save(1) as view:
        assert view.version == 0
        assert view.params[0] == 2


def test_the_next_cycle_runs_beside_a_save_and_the_one_after_waits_for_it(world: World) -> None:
    world.run(0, works(1.0))
    view = world.root.begin_save(0)
    world.run(1, works(3.0))
    for rank, work in works(5.0).items():
        world.ready(2, rank, work)
    end = world.clients[0].wait_round(20)
    assert end.round is Round.CONTROL
    with pytest.raises(TimeoutError):
        world.clients[0].wait_round(0.1)
    assert (view.params[:20] == 2).all()
    assert (view.buffers[:5] == 2).all()
    view.release()
    view.release()
    adopted = world.collect(2, 0)
    assert (adopted.params[:20] == 6).all()
    world.collect(2, 1)


def test_two_saves_of_one_version_are_held_apart(world: World) -> None:
    world.run(0, works(1.0))
    first, second = world.root.begin_save(0), world.root.begin_save(0)
    first.release()
    world.run(1, works(3.0))
    for rank, work in works(5.0).items():
        world.ready(2, rank, work)
    assert world.clients[0].wait_round(20).round is Round.CONTROL
    with pytest.raises(TimeoutError):
        world.clients[0].wait_round(0.1)
    assert (second.params[:20] == 2).all()
    second.release()
    world.collect(2, 0)
    world.collect(2, 1)


def test_between_the_params_and_the_buffers_round_the_older_pair_is_saved(world: World) -> None:
    world.run(0, works(1.0))
    seen = []

    def save_when_params_ended(ended: object) -> None:
        if (ended.cycle, ended.round) == (1, Round.PARAMS):
            with world.root.begin_save(0) as view:
                seen.append((view.version, float(view.params[0]), float(view.buffers[0])))

    world.on_round_ended = save_when_params_ended
    world.run(1, works(3.0))
    assert seen == [(0, 2.0, 2.0)]
    with world.root.begin_save(1) as view:
        assert (view.version, view.params[0], view.buffers[0]) == (1, 4.0, 4.0)


def test_a_save_outlives_the_root(world: World) -> None:
    world.run(0, works(1.0))
    view = world.root.begin_save(0)
    world.root.stop()
    assert view.params[:20].tolist() == [2.0] * 20
    view.release()
    assert world.root.begin_save(0) is None


def test_a_lost_commit_is_not_visible_to_a_save(world: World) -> None:
    """The only mover's link breaks before its first bucket: nothing of the cycle is committed."""
    world.run(0, works(1.0))
    world.links["h1"][0].cut_rule = lambda frame: "within" if frame.round == "params" else None
    world.ready(1, 0, Work(0))
    world.ready(1, 1, Work(1, 50.0, 50.0))
    world.collect(1, 0)
    wait_until(lambda: "h1" in world.closed)
    with world.root.begin_save(1) as view:
        assert view.version == 0
        np.testing.assert_array_equal(view.params[:20], np.full(20, 2, np.float32))
