"""Deaths and broken links at every step: bounded, accounted for, identical on the survivors."""

from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pytest
from planes_world import WAIT_S, Work, World, geometry_of, wait_until

from flodl_core.errors import RunLostError
from flodl_core.ids import Cycle, Rank, Round, RoundOutcome
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.mux import RelayDeclareDead
from flodl_core.units import BUCKET_BYTES

BUCKET = BUCKET_BYTES // 4
THREE_AND_A_HALF = BUCKET * 3 + BUCKET // 2


@pytest.fixture
def build() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(*arguments: object, **options: object) -> World:
        made.append(World(*arguments, **options))
        return made[-1]

    yield make
    for world in made:
        world.close()


LAYOUTS = [([[0, 1, 2]], True), ([[0, 1, 2]], False), ([[0], [1, 2]], True)]


@pytest.mark.parametrize(("hosts", "local"), LAYOUTS)
def test_a_death_before_the_mark_frees_the_barrier(
    build: Callable[..., World], hosts: list, local: bool
) -> None:
    world = build(geometry_of([20], [3]), hosts, local)
    world.ready(0, 0, Work(1, 2.0, 2.0))
    world.ready(0, 2, Work(1, 4.0, 4.0))
    world.leave(1)
    adopted = {rank: world.collect(0, rank) for rank in (0, 2)}
    assert (adopted[0].params[:20] == 3).all()
    np.testing.assert_array_equal(adopted[0].params, adopted[2].params)
    assert adopted[0].ends[Round.CONTROL].ranks_accepted == (0, 2)


@pytest.mark.parametrize(("hosts", "local"), LAYOUTS)
def test_a_rank_declared_dead_is_waited_for_no_more(
    build: Callable[..., World], hosts: list, local: bool
) -> None:
    world = build(geometry_of([20]), hosts, local)
    world.ready(0, 0, Work(1, 2.0))
    world.ready(0, 2, Work(1, 4.0))
    world.root.declare_dead(Rank(1))
    world.root.declare_dead(Rank(1))
    assert (world.collect(0, 0).params[:20] == 3).all()
    world.collect(0, 2)
    world.ready(1, 0, Work(1, 6.0))
    world.ready(1, 2, Work(1, 6.0))
    assert (world.collect(1, 0).params[:20] == 6).all()


@pytest.mark.parametrize(("hosts", "local"), LAYOUTS)
def test_a_rank_that_dies_after_its_mark_is_still_in_the_round(
    build: Callable[..., World], hosts: list, local: bool
) -> None:
    world = build(geometry_of([20], [3]), hosts, local)
    world.ready(0, 1, Work(2, 8.0, 8.0))
    world.leave(1)
    world.root.declare_dead(Rank(1))
    world.ready(0, 0, Work(1, 2.0, 2.0))
    world.ready(0, 2, Work(1, 2.0, 2.0))
    adopted = world.collect(0, 0)
    assert (adopted.params[:20] == 5).all()
    assert (adopted.buffers[:3] == 4).all()
    assert adopted.ends[Round.PARAMS].ranks_accepted == (0, 1, 2)
    world.collect(0, 2)
    again = {rank: Work(1, 1.0, 1.0) for rank in (0, 2)}
    assert world.run(1, again)[2].ends[Round.PARAMS].ranks_accepted == (0, 2)


def test_the_only_rank_of_a_host_may_die_after_its_mark(build: Callable[..., World]) -> None:
    world = build(geometry_of([20], [3]), [[0], [1]])
    world.ready(0, 1, Work(3, 8.0, 8.0))
    world.leave(1)
    world.ready(0, 0, Work(1, 4.0, 4.0))
    adopted = world.collect(0, 0)
    assert (adopted.params[:20] == 7).all()
    assert adopted.ends[Round.BUFFERS].ranks_accepted == (0, 1)
    wait_until(lambda: "h1" in world.relay_ends)
    assert world.relay_ends["h1"][1] is None
    world.root.declare_dead(Rank(1))
    assert (world.run(1, {0: Work(1, 9.0, 9.0)})[0].params[:20] == 9).all()


def cut_at(round_: Round, index: int, where: str) -> Callable[[BucketFrame], str | None]:
    def rule(frame: BucketFrame) -> str | None:
        return where if (frame.round, frame.index, frame.cycle) == (round_, index, 1) else None

    return rule


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "within"])
@pytest.mark.parametrize("index", range(4))
def test_a_link_that_breaks_at_a_bucket_leaves_its_host_out_from_there_on(
    build: Callable[..., World], index: int, where: str
) -> None:
    world = build(geometry_of([THREE_AND_A_HALF], [7]), [[0], [1], [2]])
    world.run(0, {rank: Work(int(rank == 0), 0.0, 0.0) for rank in range(3)})
    world.links["h1"][0].cut_rule = cut_at(Round.PARAMS, index, where)
    steps = {0: (1, 2.0), 1: (2, 8.0), 2: (1, 4.0)}
    for rank, (n, value) in steps.items():
        world.ready(1, rank, Work(n, value, value))
    adopted = {rank: world.collect(1, rank) for rank in (0, 2)}
    np.testing.assert_array_equal(adopted[0].params, adopted[2].params)
    edge = index * BUCKET
    assert (adopted[0].params[:edge] == (2 + 16 + 4) / 4).all()
    assert (adopted[0].params[edge:THREE_AND_A_HALF] == 3).all()
    end = adopted[0].ends[Round.PARAMS]
    assert (end.ranks_accepted, end.mass) == ((0, 2), 2.0)
    assert end.outcome is RoundOutcome.COMMITTED
    assert adopted[2].ends[Round.BUFFERS].ranks_accepted == (0, 2)
    assert (adopted[0].buffers[:7] == 3).all()
    with pytest.raises(RunLostError):
        world.collect(1, 1)
    again = world.run(2, {rank: Work(1, 5.0, 5.0) for rank in (0, 2)})
    assert (again[2].params[:THREE_AND_A_HALF] == 5).all()


def test_a_link_that_breaks_before_the_control_vector_leaves_its_host_out(
    build: Callable[..., World],
) -> None:
    world = build(geometry_of([9]), [[0], [1]])
    world.run(0, {0: Work(1, 1.0), 1: Work(0, 1.0)})
    world.links["h1"][0].cut_rule = cut_at(Round.CONTROL, 0, "before")
    world.ready(1, 0, Work(1, 3.0))
    world.ready(1, 1, Work(1, 9.0))
    adopted = world.collect(1, 0)
    assert adopted.ends[Round.CONTROL].ranks_accepted == (0,)
    assert (adopted.params[:9] == 3).all()


@pytest.mark.slow
def test_buckets_that_the_only_mover_did_not_bring_take_the_last_committed_values(
    build: Callable[..., World],
) -> None:
    world = build(geometry_of([THREE_AND_A_HALF], [7]), [[0], [1], [2]])
    world.run(0, {rank: Work(int(rank == 0), 6.0, 6.0) for rank in range(3)})
    world.links["h1"][0].cut_rule = cut_at(Round.PARAMS, 2, "before")
    for rank in range(3):
        world.ready(1, rank, Work(int(rank == 1), 50.0 + rank, 50.0 + rank))
    adopted = {rank: world.collect(1, rank) for rank in (0, 2)}
    for one in adopted.values():
        assert (one.params[: 2 * BUCKET] == 51).all()
        assert (one.params[2 * BUCKET : THREE_AND_A_HALF] == 6).all()
        assert one.ends[Round.PARAMS].outcome is RoundOutcome.COMMITTED
        assert one.ends[Round.PARAMS].ranks_accepted == ()
        assert one.ends[Round.BUFFERS].outcome is RoundOutcome.UNREALIZED
        assert (one.buffers[:7] == 6).all()


def test_a_round_that_lost_its_only_mover_before_the_first_bucket_realizes_nothing(
    build: Callable[..., World],
) -> None:
    world = build(geometry_of([9], [3]), [[0], [1], [2]])
    world.run(0, {rank: Work(int(rank == 0), 6.0, 6.0) for rank in range(3)})
    world.links["h1"][0].cut_rule = cut_at(Round.PARAMS, 0, "before")
    for rank in range(3):
        world.ready(1, rank, Work(int(rank == 1), 50.0, 50.0))
    for rank in (0, 2):
        adopted = world.collect(1, rank)
        assert adopted.ends[Round.PARAMS].outcome is RoundOutcome.UNREALIZED
        assert adopted.ends[Round.BUFFERS].outcome is RoundOutcome.UNREALIZED
        assert (adopted.params[:9] == 6).all()
    assert world.root.committed_version == 0
    assert (world.run(2, {0: Work(1, 1.0, 1.0), 2: Work(1, 3.0, 3.0)})[0].params[:9] == 2).all()


def test_a_link_that_breaks_after_the_last_bucket_costs_nothing(
    build: Callable[..., World],
) -> None:
    world = build(geometry_of([9], [3]), [[0], [1]])
    world.run(0, {0: Work(1, 1.0, 1.0), 1: Work(0, 1.0, 1.0)})

    def cut_after_params(ended: object) -> None:
        if (ended.cycle, ended.round) == (1, Round.PARAMS):
            world.links["h1"][0].close()

    world.on_round_ended = cut_after_params
    world.ready(1, 0, Work(1, 3.0, 3.0))
    world.ready(1, 1, Work(1, 9.0, 9.0))
    adopted = world.collect(1, 0)
    assert adopted.ends[Round.PARAMS].ranks_accepted == (0, 1)
    assert (adopted.params[:9] == 6).all()
    assert adopted.ends[Round.BUFFERS].ranks_accepted == (0,)
    assert (adopted.buffers[:3] == 3).all()


def test_a_vector_that_comes_after_its_host_was_given_up_is_turned_away(
    build: Callable[..., World],
) -> None:
    world = build(geometry_of([9]), [[0], [1]])
    gate = world.links["h1"][0].gate
    gate.clear()
    world.ready(0, 1, Work(1, 9.0))
    world.ready(0, 0, Work(1, 3.0))
    world.root.declare_dead(Rank(1))
    assert (world.collect(0, 0).params[:9] == 3).all()
    wait_until(lambda: RelayDeclareDead(rank=Rank(1)) in world.links["h1"][1].delivered)
    gate.set()
    wait_until(lambda: "h1" in world.relay_ends)
    assert "last cycle is over" in world.relay_ends["h1"][0]
    assert [note.code for note in world.notes if note.code.startswith("late")] == [
        "late_control_vector"
    ]
    assert (world.run(1, {0: Work(1, 4.0)})[0].params[:9] == 4).all()


def test_when_the_root_goes_the_relay_ends_and_its_ranks_are_told(
    build: Callable[..., World],
) -> None:
    world = build(geometry_of([9]), [[0], [1, 2]])
    world.ready(0, 1, Work(1, 1.0))
    world.links["h1"][0].close()
    for rank in (1, 2):
        with pytest.raises(RunLostError, match="look at the log"):
            world.clients[rank].wait_round(WAIT_S)
    with pytest.raises(RunLostError):
        world.clients[1].ready(Cycle(1))
    wait_until(lambda: "h1" in world.relay_ends)
    assert world.relay_ends["h1"][1] is None


def test_when_all_ranks_of_a_relay_leave_it_ends(build: Callable[..., World]) -> None:
    world = build(geometry_of([9]), [[0], [1, 2]])
    world.leave(1)
    world.leave(2)
    wait_until(lambda: "h1" in world.relay_ends)
    assert world.relay_ends["h1"] == ("every local rank is gone", None)


def test_a_second_mark_in_one_cycle_costs_the_rank_its_place(build: Callable[..., World]) -> None:
    world = build(geometry_of([9]), [[0, 1]])
    world.ready(0, 0, Work(1, 1.0))
    world.ready(0, 0, Work(1, 1.0))
    wait_until(lambda: bool(world.notes))
    assert "deposited twice" in str(world.notes[0].fields["reason"])
    world.ready(0, 1, Work(1, 3.0))
    assert (world.collect(0, 1).params[:9] == 2).all()


def test_a_wait_that_times_out_loses_nothing(build: Callable[..., World]) -> None:
    world = build(geometry_of([9]), [[0, 1]])
    world.ready(0, 0, Work(1, 1.0))
    with pytest.raises(TimeoutError):
        world.clients[0].wait_round(0.01)
    world.ready(0, 1, Work(1, 3.0))
    assert (world.collect(0, 0).params[:9] == 2).all()


def test_an_error_of_the_coordinators_side_ends_the_root_and_is_reported() -> None:
    world = World(geometry_of([9]), [[0]])

    def refuse(ended: object) -> None:
        raise ValueError("the inbox is full")

    with closing(world.clients[0]):
        world.on_round_ended = refuse
        world.ready(0, 0, Work(1, 1.0))
        with pytest.raises(RunLostError):
            world.clients[0].wait_round(WAIT_S)
        wait_until(lambda: bool(world.failures))
        assert "inbox is full" in str(world.failures.pop())
        world.root.stop()


def test_stopping_while_a_round_waits_returns_at_once(build: Callable[..., World]) -> None:
    world = build(geometry_of([9]), [[0], [1]])
    world.links["h1"][0].gate.clear()
    world.ready(0, 0, Work(1, 1.0))
    world.ready(0, 1, Work(1, 1.0))
    world.root.stop()
    with pytest.raises(RunLostError):
        world.clients[0].wait_round(WAIT_S)
    world.links["h1"][0].gate.set()
