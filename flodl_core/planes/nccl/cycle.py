"""One averaging among GPUs: COUNT, PARAM, BUFFER; then adoption, or nothing has changed.

```
COUNT   who brings how much, unfrozen flags: one sum, always
        nothing realized ─▶ UNREALIZED after one collective
PARAM   Σ factor · parameters into the kept buffer, factor = mass / Σ mass
BUFFER  Σ mover / Σ mover · buffers into its kept buffer, if there are any
        the last event passed, the communicator is well ─▶ completed ─▶ adopted
```

The parameters are only read until the cycle is completed: whoever loses a peer inside a
collective still has its own values and repeats the cycle with the survivors. The kept
buffer holds the consensus until the next PARAM, so that one who completed can give it to
others who did not. Where no buffer is kept, PARAM works in place, and a break inside it
leaves values that are neither old nor new. With an outer optimizer every rank steps the
consensus as it adopts it (`outer_step`).

Steps are generators: they yield while they wait, and end with their result. The training
thread drives them; it knows no communicator.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import numpy as np
import torch

from flodl_core.ids import Cycle, Rank, SyncOutcome
from flodl_core.messages.data import RankTally
from flodl_core.messages.job import Geometry
from flodl_core.planes.nccl.adoption import Adoption
from flodl_core.planes.nccl.collective import (
    Collective,
    CollectiveError,
    CommState,
    Fabric,
    Mark,
    Mirror,
)
from flodl_core.planes.nccl.count import Count, CountVector
from flodl_core.planes.nccl.keeper import FormedSession, SessionBrokenError, SessionKeeper
from flodl_core.planes.nccl.parts import CountClaim, CycleEnd, RankRegions, pairs_of
from flodl_core.planes.nccl.trace import CollectiveTrace
from flodl_core.planes.nccl.waiting import looks
from flodl_core.planes.segment import F64
from flodl_core.reduce.buckets import Run, active_segments, active_spans, buffer_spans
from flodl_core.reduce.divergence import Divergence, triple_of_sums
from flodl_core.reduce.mass import gamma_mass, is_realized, mover_mass
from flodl_core.reduce.outer import OuterAvg, OuterRule


@dataclass(frozen=True, slots=True)
class _Entered:
    """A collective that is enqueued, and the mark behind it."""

    where: str
    mark: Mark


@dataclass(slots=True)
class CollectiveCycle:
    """The cycles of one rank.

    Args:
        geometry: of the run.
        regions: of the rank's model.
        rank: of this process, in the world as it formed.
        world_size: ranks of that world.
        fabric: of the device.
        keeper: of the sessions.
        outer: what is made of an average; one with a velocity needs `regions.outer`.
    """

    geometry: Geometry
    regions: RankRegions
    rank: Rank
    world_size: int
    fabric: Fabric
    keeper: SessionKeeper
    outer: OuterRule = field(default_factory=OuterAvg)
    trace: CollectiveTrace = field(default_factory=CollectiveTrace)
    on_counted: Callable[[RankTally], None] = lambda _: None
    """Told what this rank contributes, once it is known and before anything else moves."""
    holds_consensus: bool = field(init=False, default=True)
    """Whether the kept buffers hold what was completed last; not once a break has spoilt them."""
    _adoption: Adoption = field(init=False)
    _health: Mirror = field(init=False)
    """Of this rank: one number, 0, or not finite where a value is not."""
    _is_prepared: bool = field(init=False, default=False)
    _counts: CountVector = field(init=False)
    _spans: dict[bytes, tuple[Run, ...]] = field(init=False, default_factory=dict)
    _realized: F64 | None = field(init=False, default=None)
    """Unfrozen flags of the newest completed cycle; None if it had no consensus."""
    _declared_in: Cycle | None = field(init=False, default=None)
    """The newest cycle that this rank counted in, if its values were not finite there."""

    def __post_init__(self) -> None:
        """Choose how to adopt on this device."""
        self._adoption = Adoption(self.fabric, self.regions, self.outer)
        self._health = self.fabric.mirror(1)
        self._counts = CountVector(
            self.fabric,
            self.rank,
            world_size=self.world_size,
            segments=len(self.geometry.params),
        )

    @property
    def why_not_fused(self) -> str:
        """Why adoption takes more than one pass on a GPU; empty if it does not."""
        return self._adoption.why_not_fused

    def prepare(self) -> None:
        """Enqueue the look at this rank's values that the next cycle begins with.

        For a rank that waits for it and does nothing more to its values; see `forget`.
        """
        self.fabric.begin()
        try:
            self._look()
        finally:
            self.fabric.end()
        self._is_prepared = True

    def forget(self) -> None:
        """The values may have changed since `prepare`: the next cycle looks at them itself."""
        self._is_prepared = False

    def run(self, claim: CountClaim, formed: FormedSession) -> Generator[None, None, CycleEnd]:
        """Run one cycle in a session.

        Raises:
            SessionBrokenError: a member is gone; nothing of the model has changed, unless it
                is reduced in place.
            CollectiveError: the library refused.
        """
        self.fabric.begin(is_behind=self._is_prepared)
        try:
            yield from self._wait(self._enter_count(claim, formed), formed)
            count = self._counts.read(claim.gamma)
            self._declared_in = claim.cycle if count.mine.declared else None
            self.on_counted(count.mine)
            if not is_realized(count.mass):
                self._keep_own(is_well=not count.mine.declared)
                self._complete(formed, claim.cycle, None)
                return CycleEnd(cycle=claim.cycle, outcome=SyncOutcome.UNREALIZED)
            spans = self._spans_of(claim.cycle, count.flags)
            for entered in self._enter_sums(claim, count, spans, formed):
                yield from self._wait(entered, formed)
            self._complete(formed, claim.cycle, count.flags)
            return self._adopt(claim.cycle, spans, declared=count.mine.declared)
        finally:
            self.fabric.end()

    def recover(
        self, formed: FormedSession, pending: Cycle | None
    ) -> Generator[None, None, CycleEnd | None]:
        """Give everybody what a member has completed: the first act of a new session.

        Args:
            formed: the new session, with a source.
            pending: the cycle that this rank has not completed; None if it has.

        Returns:
            How that cycle ended; None if nothing was pending here.

        Raises:
            SessionBrokenError: a member is gone.
        """
        self.fabric.begin()
        try:
            return (yield from self._recover(formed, pending))
        finally:
            self.fabric.end()

    def _recover(
        self, formed: FormedSession, pending: Cycle | None
    ) -> Generator[None, None, CycleEnd | None]:
        root = formed.source
        assert root is not None
        newest = self._realized
        flags = np.zeros(len(self.geometry.params)) if newest is None else newest
        header = self.fabric.mirror(2 + len(flags))
        header.sent[:] = [float(self.keeper.completed), float(newest is not None), *flags]
        header.send()
        if not self.holds_consensus:
            self._look()
            self._health.fetch()

        def enqueue(comm: Collective) -> None:
            comm.broadcast(header.device, root)
            header.fetch()

        yield from self._wait(self._enter("RECOVER", formed, enqueue, cycle=pending), formed)
        completed, realized, *found = header.fetched.tolist()
        if realized:
            is_missing = pending is not None and pending == int(completed)
            self.keeper.risk(formed, is_damaged=self.regions.in_place and is_missing)
            for name, values in self._kept():
                entered = self._enter(
                    name,
                    formed,
                    lambda comm, values=values: comm.broadcast(values, root),  # type: ignore[misc]
                    cycle=pending,
                )
                yield from self._wait(entered, formed)
        if pending is None or pending != int(completed):
            return None
        flags = np.asarray(found)
        self._complete(formed, pending, flags if realized else None)
        if not realized:
            self._keep_own(is_well=bool(np.isfinite(self._health.fetched[0])))
            return CycleEnd(cycle=pending, outcome=SyncOutcome.UNREALIZED)
        spans, memory = self._spans_of(pending, flags), self.regions.outer
        declared = self._declared_in == pending
        if memory is not None and self.regions.in_place:
            # what came has been stepped already, and the velocity came with it
            memory.previous.copy_(self.regions.params)
            took_buffers = self._adoption.take_buffers()
            memory.steps_next = True
            return CycleEnd(
                cycle=pending,
                outcome=SyncOutcome.DECLINED if declared else SyncOutcome.COMMITTED,
                spans=spans,
                took_buffers=took_buffers,
            )
        return self._adopt(pending, spans, declared=declared)

    def take_initial(self) -> None:
        """Keep what the initial broadcast brought, frozen parameters too."""
        if not self.regions.in_place:
            self.regions.kept_params.copy_(self.regions.params)
        if self.regions.outer is not None:
            self.regions.outer.previous.copy_(self.regions.params)
        self.regions.kept_buffers.copy_(self.regions.buffers)

    def _kept(self) -> tuple[tuple[str, torch.Tensor], ...]:
        """Return what one who completed a cycle gives to those who did not."""
        regions = self.regions
        kept = [("RECOVER-PARAM", regions.kept_params), ("RECOVER-BUFFER", regions.kept_buffers)]
        if regions.outer is not None and regions.in_place:
            kept.append(("RECOVER-VELOCITY", regions.outer.velocity))
        return tuple((name, values) for name, values in kept if values.numel())

    def _complete(self, formed: FormedSession, cycle: Cycle, flags: F64 | None) -> None:
        self.keeper.complete(formed, cycle)
        self._realized = flags
        if flags is not None:
            self.holds_consensus = True

    def _keep_own(self, *, is_well: bool) -> None:
        """Nobody brings anything: one whose kept buffer was spoilt still has the values itself."""
        if is_well and not self.holds_consensus:
            self.take_initial()
            self.holds_consensus = True

    def _enter_count(self, claim: CountClaim, formed: FormedSession) -> _Entered:
        if not self._is_prepared:
            self._look()
        self._is_prepared = False
        self._counts.send(claim, self._health.device[0])
        return self._enter("COUNT", formed, self._counts.sum, cycle=claim.cycle)

    def _look(self) -> None:
        self._adoption.look(self._health.device[0])

    def _spans_of(self, cycle: Cycle, flags: F64) -> tuple[Run, ...]:
        """Return the runs that take part; the same flags give the same runs."""
        key = (flags > 0).tobytes()
        if key not in self._spans:
            active = active_segments(self.geometry, cycle, flags)
            self._spans = {key: active_spans(self.geometry, active)}
        return self._spans[key]

    def _enter_sums(
        self, claim: CountClaim, count: Count, spans: tuple[Run, ...], formed: FormedSession
    ) -> list[_Entered]:
        """Enqueue PARAM and BUFFER, as far as there is anything for them."""
        regions, n = self.regions, count.mine.n
        self.keeper.risk(formed, is_damaged=regions.in_place)
        self.holds_consensus = False
        params = pairs_of(regions.params, regions.kept_params, spans, moves=n > 0)
        runs = buffer_spans(self.geometry)
        buffers = pairs_of(regions.buffers, regions.kept_buffers, runs, moves=n > 0)
        parts = (
            ("PARAM", params, gamma_mass(n, claim.gamma) / count.mass),
            ("BUFFER", buffers, mover_mass(n) / count.movers),
        )
        return [
            self._enter(
                name,
                formed,
                lambda comm, pairs=pairs, factor=factor: comm.sum_scaled(pairs, factor),  # type: ignore[misc]
                cycle=claim.cycle,
            )
            for name, pairs, factor in parts
            if pairs
        ]

    def _enter(
        self,
        name: str,
        formed: FormedSession,
        enqueue: Callable[[Collective], None],
        *,
        cycle: Cycle | None,
    ) -> _Entered:
        """Enqueue a collective, and a mark behind it."""
        where = self.trace.enter(name, formed.session, cycle)
        try:
            with formed.using() as comm:
                enqueue(comm)
        except CollectiveError:
            self._look_after(formed, where)
            raise
        return _Entered(where, self.fabric.mark())

    def _wait(self, entered: _Entered, formed: FormedSession) -> Generator[None, None, None]:
        """Wait until a collective has ended, and its communicator is well."""
        self.trace.wait(entered.where)
        for _ in looks():
            state = self._look_after(formed, entered.where)
            if state is CommState.READY and entered.mark.is_done():
                break
            yield
        self.trace.leave(entered.where)

    def _look_after(self, formed: FormedSession, where: str) -> CommState:
        """Return how a communicator stands; one that failed breaks its session.

        A library that finds a peer gone says so before the coordinator does, also to who
        enqueues the next collective.
        """
        with formed.using() as comm:
            state = comm.state()
        if state is CommState.FAILED:
            name = where.split(" ", 1)[0]
            self.keeper.fail(formed, f"its communicator failed in {name}")
            raise SessionBrokenError(f"session {formed.session} failed in {name}")
        return state

    def _adopt(self, cycle: Cycle, spans: tuple[Run, ...], *, declared: bool) -> CycleEnd:
        """Overwrite the parameters; one who declared had no values to be apart from."""
        adopted = self._adoption.take(spans)
        divergence: Divergence | None = None
        if adopted.sums is not None and not declared:
            divergence = triple_of_sums(*adopted.sums, is_empty=not spans)
        return CycleEnd(
            cycle=cycle,
            outcome=SyncOutcome.DECLINED if declared else SyncOutcome.COMMITTED,
            spans=spans,
            divergence=divergence,
            took_buffers=adopted.took_buffers,
            is_unstepped=adopted.is_unstepped,
        )
