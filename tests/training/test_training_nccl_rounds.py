"""A rank's part in cycles on NCCL: the velocity that a resumed run hands out, and its sessions."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import numpy as np
import pytest
import torch
from test_training_worker import Net, points_job
from training_cohort import CEILING_S, LocalStar, MemoryStar, envelope_for

from flodl_core.dispatch.actions import WriteCheckpoint
from flodl_core.ids import Cycle, Mode, OuterKind, Rank, Session, SyncOutcome
from flodl_core.messages.control import NewNcclSession, RequestNewNcclId
from flodl_core.messages.job import Envelope, OuterSpec
from flodl_core.planes.consensus import Beginning
from flodl_core.planes.nccl.keeper import FormedSession, SessionKeeper
from flodl_core.planes.nccl.loopback import LoopbackFabric
from flodl_core.planes.nccl.waiting import looks
from flodl_core.planes.slot import SlotHeader
from flodl_core.planes.velocity import OuterState
from flodl_core.reduce.outer import rule_of
from flodl_core.training.flat import FlatLayout
from flodl_core.training.nccl_port import NcclPort
from flodl_core.training.nccl_rounds import NcclRounds
from flodl_core.training.rounds import CycleResult, StarPort
from flodl_core.training.snapshot import Claim

SLOWMO = OuterSpec(kind=OuterKind.SLOWMO, lr=0.8, momentum=0.6)
PUBLISHES = Cycle(4), Cycle(6)
"""Of the first saves of a run with an outer velocity."""
GIVEN = 0.375


def envelope_of(world: int, outer: OuterSpec | None = None) -> Envelope:
    job = points_job(model=lambda: Net(norm=True))
    return envelope_for(job, world, mode=Mode.NCCL_SYNC, outer=outer)


def rounds_of(envelope: Envelope, rank: int, star: StarPort, entered: list[str]) -> NcclRounds:
    """Return the rounds of a rank that goes on where its next average is stepped."""
    memory = torch.zeros(envelope.geometry.params_numel)
    torch.manual_seed(rank)
    port = NcclPort(
        rank=Rank(rank),
        world_size=envelope.world_size,
        fabric=LoopbackFabric(),
        listen=lambda _: None,
        post=lambda _: None,
        note=lambda *_: None,
        record=lambda what, where: entered.append(where) if what == "ENTER" else None,
        outer=rule_of(envelope.spec.outer),
        begins_stepped=envelope.spec.outer is not None,
    )
    return NcclRounds(
        FlatLayout(Net(norm=True), envelope.geometry, params_memory=memory),
        star,
        port,
        on_adopting=lambda: None,
        on_counted=lambda *_: None,
    )


def offer(rounds: NcclRounds, cycle: int, n: int, world: int) -> None:
    rounds.offer(Claim(cycle=Cycle(cycle), n=n, samples=8 * n, gamma=1.0, world_size=world))


def result_of(rounds: NcclRounds) -> CycleResult:
    for age_s in looks():
        if (result := rounds.wait(0.1)) is not None:
            return result
        assert age_s < CEILING_S, "the cycle does not end"
    raise AssertionError


def check_velocity(star: LocalStar, ranks: list[NcclRounds], expected: float) -> None:
    """Have each rank in turn bring what a save needs; all of them have this velocity."""
    geometry = envelope_of(2).geometry
    for saver, publish in zip(ranks, PUBLISHES, strict=False):
        orders = [WriteCheckpoint(0, tells_locals=one is saver, publish=publish) for one in ranks]
        with ThreadPoolExecutor() as threads:
            faults = list(threads.map(NcclRounds.publish, ranks, orders))
        assert faults == [None] * len(ranks)
        with star.root.begin_save(publish) as view:
            assert (view.version, view.outer.steps_next) == (publish, True)
            for part in geometry.params:
                found = view.outer.velocity[part.offset : part.offset + part.numel]
                assert np.unique(found).tolist() == [expected]


@contextmanager
def resumed(velocity: float | None) -> Iterator[tuple[Envelope, LocalStar]]:
    """The root of two ranks that goes on with a velocity; None where it is 0 everywhere."""
    envelope = envelope_of(2, SLOWMO)
    values = None
    if velocity is not None:
        values = np.full(envelope.geometry.params_numel, velocity, np.float32)
    star = LocalStar(envelope, beginning=Beginning(outer=OuterState(values, steps_next=True)))
    try:
        yield envelope, star
    finally:
        star.stop()


@pytest.mark.parametrize("velocity", [None, GIVEN])
def test_every_rank_of_a_resumed_run_takes_the_velocity_that_was_saved(
    velocity: float | None,
) -> None:
    with resumed(velocity) as (envelope, star), ExitStack() as opened:
        ranks = [rounds_of(envelope, rank, star.ports[rank], []) for rank in range(2)]
        for rank, rounds in enumerate(ranks):
            opened.enter_context(closing(rounds))
            offer(rounds, 0, int(rank == 0), 2)
        with ThreadPoolExecutor() as threads:
            results = list(threads.map(result_of, ranks))
        assert [one.outcome for one in results] == [SyncOutcome.COMMITTED] * 2
        check_velocity(star, ranks, velocity or 0.0)


@pytest.mark.parametrize("velocity", [None, GIVEN])
def test_the_saved_velocity_comes_to_the_others_if_rank_0_is_lost_before_it(
    velocity: float | None,
) -> None:
    with resumed(velocity) as (envelope, star):
        first, second = star.ports
        first.slot.set_unfrozen([True] * len(envelope.geometry.params))
        first.slot.write_header(
            SlotHeader(
                cycle=Cycle(0), n=1, samples=0, mass_params=1.0, mass_buffers=1.0, declared=False
            )
        )
        with closing(rounds_of(envelope, 1, second, [])) as survivor:
            offer(survivor, 0, 0, 2)
            first.ready(Cycle(0))
            while not first.ends_cycle(first.wait_round(CEILING_S)):
                continue
            star.ports.remove(first)
            first.close()
            assert result_of(survivor).outcome is SyncOutcome.COMMITTED
            check_velocity(star, [survivor], velocity or 0.0)


class Replaced:
    """A rank's sessions, of which the first is replaced right after a look at it.

    Args:
        keeper: of the sessions.
        replace: forms the next one.
    """

    def __init__(self, keeper: SessionKeeper, replace: Callable[[], None]) -> None:
        self._keeper, self._replace = keeper, replace

    @property
    def usable(self) -> FormedSession | None:
        found = self._keeper.usable
        if found is not None and found.session == 0:
            self._replace()
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._keeper, name)


def test_a_cycle_begins_in_the_session_that_it_was_decided_for() -> None:
    """The next session has a source: whoever is in it takes part in its first act first."""
    envelope = envelope_of(1)
    star = MemoryStar(envelope)
    entered: list[str] = []
    rounds = rounds_of(envelope, 0, star.ports[0], entered)
    keeper = rounds.keeper

    def wait_for(session: int) -> None:
        for age_s in looks():
            if (found := keeper.usable) is not None and found.session == session:
                return
            assert age_s < CEILING_S, f"session {session} is not formed"

    def replace() -> None:
        keeper.heed(RequestNewNcclId(session=Session(1), makes_uid=True))
        keeper.heed(
            NewNcclSession(
                session=Session(1),
                uid=bytes(128),
                new_rank=Rank(0),
                new_world_size=1,
                consensus_from=Rank(0),
            )
        )
        wait_for(1)

    with closing(rounds):
        rounds.meet(bytes(128))
        wait_for(0)
        rounds.keeper = Replaced(keeper, replace)
        offer(rounds, 1, 1, 1)
        assert result_of(rounds).outcome is SyncOutcome.COMMITTED
    acts = [where.split(" ")[0] for where in entered if "session 1" in where]
    assert acts == ["RECOVER", "COUNT", "PARAM", "BUFFER"]
    star.stop()
