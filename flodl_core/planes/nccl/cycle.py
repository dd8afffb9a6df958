"""One averaging among GPUs: COUNT, PARAM, BUFFER; then adoption, or nothing has changed.

```
COUNT   n, samples, declared of each rank, unfrozen flags: one sum, always
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

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch

from flodl_core.ids import Cycle, Rank, SyncOutcome
from flodl_core.messages.data import RankTally
from flodl_core.messages.job import Geometry
from flodl_core.planes.control_vector import flags_of, tallies_of
from flodl_core.planes.nccl.collective import Collective, CommState, Fabric, Mirror
from flodl_core.planes.nccl.fused import SUMS, Adopter
from flodl_core.planes.nccl.keeper import FormedSession, SessionBrokenError, SessionKeeper
from flodl_core.planes.nccl.outer_step import OuterAdopter
from flodl_core.planes.nccl.parts import CountClaim, CycleEnd, RankRegions, pairs_of
from flodl_core.planes.nccl.trace import CollectiveTrace
from flodl_core.planes.nccl.waiting import looks
from flodl_core.planes.segment import F64
from flodl_core.reduce.buckets import Run, active_segments, active_spans, buffer_spans
from flodl_core.reduce.divergence import Divergence, triple_of_sums
from flodl_core.reduce.mass import gamma_mass, is_realized, mover_mass
from flodl_core.reduce.outer import OuterAvg, OuterRule

_PARTS_A_RANK: Final = 3


@dataclass(frozen=True, slots=True)
class _Count:
    mine: RankTally
    mass: float
    movers: float
    flags: F64


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
    _adopter: Adopter = field(init=False)
    _stepper: OuterAdopter | None = field(init=False, default=None)
    _sick: torch.Tensor = field(init=False)
    """Not finite where a value of this rank is not."""
    _is_prepared: bool = field(init=False, default=False)
    _counts: Mirror = field(init=False)
    _sums: Mirror = field(init=False)
    _spans: dict[bytes, tuple[Run, ...]] = field(init=False, default_factory=dict)
    _realized: F64 | None = field(init=False, default=None)
    """Unfrozen flags of the newest completed cycle; None if it had no consensus."""

    def __post_init__(self) -> None:
        """Choose how to adopt on this device."""
        self._adopter = Adopter(self.fabric.device)
        self._sick = torch.zeros((), dtype=torch.float64, device=self.fabric.device)
        own = _PARTS_A_RANK * self.world_size + len(self.geometry.params)
        self._counts, self._sums = self.fabric.mirror(own), self.fabric.mirror(SUMS)
        if not isinstance(self.outer, OuterAvg):
            self._stepper = OuterAdopter(self.outer, self.fabric.device)

    @property
    def why_not_fused(self) -> str:
        """Why adoption takes more than one pass on a GPU; empty if it does not."""
        return self._adopter.why_not or (self._stepper.why_not if self._stepper else "")

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
        self.fabric.begin()
        try:
            count = yield from self._count(claim, formed)
            self.on_counted(count.mine)
            if not is_realized(count.mass):
                self._complete(formed, claim.cycle, None)
                return CycleEnd(cycle=claim.cycle, outcome=SyncOutcome.UNREALIZED)
            spans = self._spans_of(claim.cycle, count.flags)
            yield from self._reduce(claim, count, spans, formed)
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

        def enqueue(comm: Collective) -> None:
            comm.broadcast(header.device, root)
            header.fetch()

        yield from self._enter("RECOVER", formed, enqueue, cycle=pending)
        completed, realized, *found = header.fetched.tolist()
        if realized:
            is_missing = pending is not None and pending == int(completed)
            self.keeper.risk(is_damaged=self.regions.in_place and is_missing)
            for name, values in self._kept():
                yield from self._enter(
                    name,
                    formed,
                    lambda comm, values=values: comm.broadcast(values, root),  # type: ignore[misc]
                    cycle=pending,
                )
        if pending is None or pending != int(completed):
            return None
        flags = np.asarray(found)
        self._complete(formed, pending, flags if realized else None)
        if not realized:
            return CycleEnd(cycle=pending, outcome=SyncOutcome.UNREALIZED)
        spans, memory = self._spans_of(pending, flags), self.regions.outer
        if memory is not None and self.regions.in_place:
            # what came has been stepped already, and the velocity came with it
            memory.previous.copy_(self.regions.params)
            took_buffers = self._take_buffers()
            memory.steps_next = True
            return CycleEnd(
                cycle=pending,
                outcome=SyncOutcome.COMMITTED,
                spans=spans,
                took_buffers=took_buffers,
            )
        return self._adopt(pending, spans, declared=False)

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

    def _count(self, claim: CountClaim, formed: FormedSession) -> Generator[None, None, _Count]:
        world, counts = self.world_size, self._counts
        vector = counts.sent
        vector[:] = 0.0
        vector[self.rank] = claim.n
        vector[world + self.rank] = claim.samples
        vector[_PARTS_A_RANK * world :] = np.asarray(claim.unfrozen, dtype=np.float64)
        if not self._is_prepared:
            self._look()
        self._is_prepared = False
        counts.send()
        counts.device[2 * world + self.rank].copy_(self._sick)

        def enqueue(comm: Collective) -> None:
            comm.sum_plain(counts.device)
            counts.fetch()

        yield from self._enter("COUNT", formed, enqueue, cycle=claim.cycle)
        found: F64 = counts.fetched.copy()
        tallies = self._tallies(found)
        masses = [gamma_mass(tally.n, claim.gamma) for tally in tallies]
        return _Count(
            mine=tallies[self.rank],
            mass=math.fsum(masses),
            movers=math.fsum(mover_mass(tally.n) for tally in tallies),
            flags=flags_of(found, world),
        )

    def _look(self) -> None:
        self._adopter.look((self.regions.params, self.regions.buffers), self._sick)

    def _tallies(self, found: F64) -> tuple[RankTally, ...]:
        """Read the counts: a rank whose health is NaN declared, and adds nothing."""
        health = found[2 * self.world_size : _PARTS_A_RANK * self.world_size]
        declared = ~np.isfinite(health)
        health[:] = declared
        found[: self.world_size][declared] = 0.0
        return tallies_of(found, self.world_size, map(Rank, range(self.world_size)))

    def _spans_of(self, cycle: Cycle, flags: F64) -> tuple[Run, ...]:
        """Return the runs that take part; the same flags give the same runs."""
        key = (flags > 0).tobytes()
        if key not in self._spans:
            active = active_segments(self.geometry, cycle, flags)
            self._spans = {key: active_spans(self.geometry, active)}
        return self._spans[key]

    def _reduce(
        self, claim: CountClaim, count: _Count, spans: Sequence[Run], formed: FormedSession
    ) -> Generator[None, None, None]:
        regions, n = self.regions, count.mine.n
        factor = gamma_mass(n, claim.gamma) / count.mass
        self.keeper.risk(is_damaged=regions.in_place)
        params = pairs_of(regions.params, regions.kept_params, spans, factor=factor)
        buffers = pairs_of(
            regions.buffers,
            regions.kept_buffers,
            buffer_spans(self.geometry),
            factor=mover_mass(n),
        )
        if params:
            yield from self._enter(
                "PARAM",
                formed,
                lambda comm: comm.sum_scaled(params, factor),
                cycle=claim.cycle,
                waits=not buffers,
            )
        if buffers:
            share = mover_mass(n) / count.movers
            yield from self._enter(
                "BUFFER", formed, lambda comm: comm.sum_scaled(buffers, share), cycle=claim.cycle
            )

    def _enter(
        self,
        name: str,
        formed: FormedSession,
        enqueue: Callable[[Collective], None],
        *,
        cycle: Cycle | None,
        waits: bool = True,
    ) -> Generator[None, None, None]:
        """Enqueue a collective; wait until it has ended, and its communicator is well."""
        self.trace.enter(name, formed.session, cycle)
        with formed.using() as comm:
            enqueue(comm)
        if waits:
            mark = self.fabric.mark()
            for _ in looks():
                with formed.using() as comm:
                    state = comm.state()
                if state is CommState.FAILED:
                    self.keeper.fail(formed, f"its communicator failed in {name}")
                    raise SessionBrokenError(f"session {formed.session} failed in {name}")
                if state is CommState.READY and mark.is_done():
                    break
                yield
        self.trace.leave(name, formed.session, cycle)

    def _adopt(self, cycle: Cycle, spans: tuple[Run, ...], *, declared: bool) -> CycleEnd:
        """Overwrite the parameters; one who declared had no values to be apart from."""
        outcome = SyncOutcome.DECLINED if declared else SyncOutcome.COMMITTED
        divergence: Divergence | None = None
        is_unstepped = False
        took_buffers = self._take_buffers()
        is_measured = self._take_params(spans)
        if is_measured:
            pre, post, apart, fault = self._read_sums()
            is_unstepped = bool(fault)
            if not (self.regions.in_place or declared):
                divergence = triple_of_sums(pre, post, apart, is_empty=not spans)
        return CycleEnd(
            cycle=cycle,
            outcome=outcome,
            spans=spans,
            divergence=divergence,
            took_buffers=took_buffers,
            is_unstepped=is_unstepped,
        )

    def _read_sums(self) -> list[float]:
        self._sums.fetch()
        mark = self.fabric.mark()
        for _ in looks():
            if mark.is_done():
                break
        return [float(one) for one in self._sums.fetched]

    def _take_buffers(self) -> bool:
        """Enqueue the adoption of the buffers; return whether there are any."""
        has_buffers = self.regions.buffers.numel() > 0
        if has_buffers:
            self.regions.buffers.copy_(self.regions.kept_buffers)
        return has_buffers

    def _take_params(self, spans: tuple[Run, ...]) -> bool:
        """Enqueue the adoption; return whether its sums are to be read."""
        regions, memory, sums = self.regions, self.regions.outer, self._sums.device
        if self._stepper is not None and memory is not None and memory.steps_next:
            self._stepper.adopt(regions.params, regions.kept_params, memory, spans=spans, sums=sums)
            return True
        if not regions.in_place:
            self._adopter.adopt(regions.params, regions.kept_params, spans, sums=sums)
        if memory is not None:
            for offset, length in spans:
                run = slice(offset, offset + length)
                memory.previous[run] = regions.params[run]
            memory.steps_next = True
        return not regions.in_place
