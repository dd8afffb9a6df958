"""Members of the NCCL plane as threads of one process, over a fabric that the test chooses.

Each has a keeper, regions and cycles of its own; messages to the coordinator are kept in a
list. A test plays the coordinator.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from planes_world import geometry_of, padding_of

from flodl_core.ids import Cycle, Rank, Session
from flodl_core.messages.control import DeclareDead, NewNcclSession, RequestNewNcclId
from flodl_core.messages.data import RankTally
from flodl_core.messages.job import Geometry
from flodl_core.messages.timing import Exiting, NcclSessionFormed, NewNcclIdGenerated
from flodl_core.net import clock
from flodl_core.planes.nccl.collective import Fabric
from flodl_core.planes.nccl.cycle import CollectiveCycle
from flodl_core.planes.nccl.keeper import FormedSession, SessionBrokenError, SessionKeeper
from flodl_core.planes.nccl.loopback import LoopbackFabric
from flodl_core.planes.nccl.outer_step import OuterMemory
from flodl_core.planes.nccl.parts import CountClaim, CycleEnd, RankRegions
from flodl_core.planes.nccl.trace import CollectiveTrace
from flodl_core.planes.nccl.waiting import looks
from flodl_core.reduce.outer import OuterAvg, OuterRule

T = TypeVar("T")
PATIENCE_S = 20.0
FabricOf = Callable[[int], Fabric]


def loopback(_: int) -> Fabric:
    """Return a fabric of sockets."""
    return LoopbackFabric()


class HaltError(Exception):
    """The member goes no further: its process is gone."""


@dataclass
class Member:
    """One rank of the plane."""

    rank: int
    size: int
    fabric: Fabric
    geometry: Geometry
    in_place: bool = False
    prepares: bool = False
    """Whether it looks at its values before each cycle, as ranks do that wait for the call."""
    outer: OuterRule = field(default_factory=OuterAvg)
    posted: list[object] = field(default_factory=list)
    entered: list[str] = field(default_factory=list)
    counted: list[RankTally] = field(default_factory=list)
    halts_at: str = ""

    def __post_init__(self) -> None:
        device = self.fabric.device
        self.fabric.bind()
        self.keeper = SessionKeeper(
            Rank(self.rank), self.fabric, post=self.posted.append, note=lambda *_: None
        )
        params = torch.zeros(self.geometry.params_numel, device=device)
        buffers = torch.zeros(self.geometry.buffers_numel, device=device)
        self.regions = RankRegions(
            params=params,
            buffers=buffers,
            kept_params=params if self.in_place else torch.zeros_like(params),
            kept_buffers=torch.zeros_like(buffers),
            outer=(
                OuterMemory(torch.zeros_like(params), torch.zeros_like(params))
                if self.outer.has_velocity
                else None
            ),
        )
        self.cycles = CollectiveCycle(
            geometry=self.geometry,
            regions=self.regions,
            rank=Rank(self.rank),
            world_size=self.size,
            fabric=self.fabric,
            keeper=self.keeper,
            outer=self.outer,
            trace=CollectiveTrace(self._record),
            on_counted=self.counted.append,
        )

    def _record(self, what: str, where: str) -> None:
        name = where.split(" ")[0]
        if what == "ENTER":
            self.entered.append(name)
            if name == self.halts_at:
                raise HaltError

    def formed(self) -> FormedSession:
        """Wait until a session is usable."""
        return waited_for(lambda: self.keeper.usable, "no session formed")

    def average(
        self, n: int, *, cycle: int = 1, gamma: float = 1.0, unfrozen: Sequence[bool] | None = None
    ) -> CycleEnd:
        """Take part in one cycle."""
        if self.prepares:
            self.cycles.prepare()
        flags = [part.trainable for part in self.geometry.params]
        claim = CountClaim(
            cycle=Cycle(cycle),
            n=n,
            samples=4 * n,
            gamma=gamma,
            unfrozen=flags if unfrozen is None else unfrozen,
        )
        return finish(self.cycles.run(claim, self.formed()))

    def recover(self, pending: int | None) -> CycleEnd | None:
        """Take part in the first act of a session with a source."""
        return finish(
            self.cycles.recover(self.formed(), None if pending is None else Cycle(pending))
        )

    def answer_of(self, session: int) -> NewNcclIdGenerated:
        """Wait for this member's answer to a request."""
        return waited_for(
            lambda: next(
                (one for one in self._said(NewNcclIdGenerated) if one.session == session), None
            ),
            "no answer came",
        )

    def wait_for_exiting(self) -> Exiting:
        """Wait until this member says that it ends."""
        return waited_for(
            lambda: next(iter(self._said(Exiting)), None), "it does not say that it ends"
        )

    def wait_for_completed(self, cycle: int) -> None:
        """Wait until this member has completed a cycle."""
        waited_for(
            lambda: self.keeper.completed >= cycle or None, f"cycle {cycle} is not completed"
        )

    def wait_for_entry(self, name: str, *, times: int) -> None:
        """Wait until this member has entered a collective so many times."""
        waited_for(lambda: self.entered.count(name) >= times or None, f"{name} is not entered")

    def _said(self, kind: type[T]) -> list[T]:
        return [message for message in list(self.posted) if isinstance(message, kind)]

    @property
    def sessions(self) -> list[int]:
        """The sessions that it said are formed."""
        return [one.session for one in self.posted if isinstance(one, NcclSessionFormed)]


def waited_for(look: Callable[[], T | None], complaint: str) -> T:
    """Return what a look finds, once it finds anything."""
    for age_s in looks():
        if (found := look()) is not None:
            return found
        assert age_s < PATIENCE_S, complaint
    raise AssertionError


def finish(steps: Generator[None, None, T]) -> T:
    """Drive a step to its end."""
    began = clock.now()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        assert clock.now() - began < PATIENCE_S, "the cycle does not end"


class Cohort:
    """Some members, and their coordinator."""

    def __init__(
        self,
        size: int,
        *,
        fabric: FabricOf = loopback,
        geometry: Geometry | None = None,
        in_place: bool = False,
        prepares: bool = False,
        outer: OuterRule | None = None,
    ) -> None:
        geometry = geometry or geometry_of((40, 3, 17), (5,))
        rule = outer or OuterAvg()
        self.members = [
            Member(rank, size, fabric(rank), geometry, in_place, prepares, rule)
            for rank in range(size)
        ]
        self.alive = list(self.members)
        uid = self.members[0].keeper.new_uid()
        for member in self.members:
            member.keeper.form_first(uid, size=size)
        self.together(Member.formed)

    def fill(self, seed: int) -> None:
        """Give every member values of its own."""
        for member in self.members:
            generator = torch.Generator().manual_seed(1000 * seed + member.rank)
            of = member.geometry
            for region, parts in (
                (member.regions.params, of.params),
                (member.regions.buffers, of.buffers),
            ):
                values = torch.randn(region.numel(), generator=generator)
                values[torch.from_numpy(padding_of(parts, region.numel()))] = 0.0
                region.copy_(values)

    def values(self) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
        """Return each member's parameters, in f64."""
        return [one.regions.params.cpu().double().numpy().copy() for one in self.members]

    def together(self, act: Callable[[Member], T]) -> list[T | BaseException]:
        """Have every living member do the same at once; an error is a member's result."""
        results: dict[int, T | BaseException] = {}

        def run(member: Member) -> None:
            member.fabric.bind()
            try:
                results[member.rank] = act(member)
            except (SessionBrokenError, HaltError) as error:
                results[member.rank] = error

        threads = [threading.Thread(target=run, args=(one,)) for one in self.alive]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE_S)
            assert not thread.is_alive(), "a member hangs"
        return [results[one.rank] for one in self.alive]

    def bury(self, rank: int) -> None:
        """A member's process is gone: silence, until the others are told."""
        dead = self.members[rank]
        self.alive.remove(dead)
        dead.keeper.close()

    def tell_of(self, rank: int) -> None:
        """Tell the living of a death."""
        for member in self.alive:
            member.keeper.heed(DeclareDead(rank=Rank(rank)))

    @contextlib.contextmanager
    def death_before(self, late: Member, *, dead: int, cycle: int) -> Iterator[None]:
        """A death comes between the others' completion of a cycle and a late member's own."""
        complete = late.keeper.complete

        def too_late(formed: FormedSession, done: Cycle) -> None:
            self.members[0].wait_for_completed(cycle)
            self.bury(dead)
            self.tell_of(dead)
            complete(formed, done)

        late.keeper.complete = too_late  # type: ignore[method-assign]
        yield
        late.keeper.complete = complete  # type: ignore[method-assign]

    def reform(self, session: int = 1) -> list[int]:
        """Form the next session among the living; return what each had completed."""
        for index, member in enumerate(self.alive):
            member.keeper.heed(RequestNewNcclId(session=Session(session), makes_uid=index == 0))
        answers = [member.answer_of(session) for member in self.alive]
        completed = [answer.completed_cycle for answer in answers]
        newest = max(completed)
        source = completed.index(newest) if min(completed) != newest else None
        for index, member in enumerate(self.alive):
            member.keeper.heed(
                NewNcclSession(
                    session=Session(session),
                    uid=answers[0].uid or os.urandom(128),
                    new_rank=Rank(index),
                    new_world_size=len(self.alive),
                    consensus_from=None if source is None else Rank(source),
                )
            )
        return [int(one) for one in completed]

    def close(self) -> None:
        """End every member."""
        for member in self.alive:
            member.keeper.close()
