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
from flodl_core.planes.nccl.collective import Collective, CommState, Fabric
from flodl_core.planes.nccl.fused import Adopter, spread_of
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
    _spans: dict[bytes, tuple[Run, ...]] = field(init=False, default_factory=dict)
    _realized: F64 | None = field(init=False, default=None)
    """Unfrozen flags of the newest completed cycle; None if it had no consensus."""

    def __post_init__(self) -> None:
        """Choose how to adopt on this device."""
        self._adopter = Adopter(self.fabric.device)
        if not isinstance(self.outer, OuterAvg):
            self._stepper = OuterAdopter(self.outer, self.fabric.device)

    @property
    def why_not_fused(self) -> str:
        """Why adoption takes more than one pass on a GPU; empty if it does not."""
        return self._adopter.why_not or (self._stepper.why_not if self._stepper else "")

    def run(self, claim: CountClaim, formed: FormedSession) -> Generator[None, None, CycleEnd]:
        """Run one cycle in a session.

        Raises:
            SessionBrokenError: a member is gone; nothing of the model has changed, unless it
                is reduced in place.
            CollectiveError: the library refused.
        """
        count = yield from self._count(claim, formed)
        self.on_counted(count.mine)
        if not is_realized(count.mass):
            self._complete(formed, claim.cycle, None)
            return CycleEnd(cycle=claim.cycle, outcome=SyncOutcome.UNREALIZED)
        spans = self._spans_of(claim.cycle, count.flags)
        yield from self._reduce(claim, count, spans, formed)
        self._complete(formed, claim.cycle, count.flags)
        return self._adopt(claim.cycle, spans, declared=count.mine.declared)

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
        root = formed.source
        assert root is not None
        newest = self._realized
        flags = np.zeros(len(self.geometry.params)) if newest is None else newest
        header = torch.tensor(
            [float(self.keeper.completed), float(newest is not None), *flags],
            dtype=torch.float64,
            device=self.fabric.device,
        )
        yield from self._enter(
            "RECOVER", formed, lambda comm: comm.broadcast(header, root), cycle=pending
        )
        completed, realized, *found = header.tolist()
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
            memory.steps_next = True
            return CycleEnd(
                cycle=pending,
                outcome=SyncOutcome.COMMITTED,
                spans=spans,
                took_buffers=self._take_buffers(),
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
        world, own = self.world_size, _PARTS_A_RANK * self.world_size + len(claim.unfrozen)
        vector = np.zeros(own, dtype=np.float64)
        vector[self.rank] = claim.n
        vector[world + self.rank] = claim.samples
        vector[_PARTS_A_RANK * world :] = np.asarray(claim.unfrozen, dtype=np.float64)
        with self.fabric.syncing():
            counts = torch.from_numpy(vector).to(self.fabric.device)
            counts[2 * world + self.rank] = self._health()
        yield from self._enter(
            "COUNT", formed, lambda comm: comm.sum_plain(counts), cycle=claim.cycle
        )
        found: F64 = counts.cpu().numpy()
        tallies = self._tallies(found)
        masses = [gamma_mass(tally.n, claim.gamma) for tally in tallies]
        return _Count(
            mine=tallies[self.rank],
            mass=math.fsum(masses),
            movers=math.fsum(mover_mass(tally.n) for tally in tallies),
            flags=flags_of(found, world),
        )

    def _health(self) -> torch.Tensor:
        """Return 0, or NaN where a value is not finite; as few launches as can be."""
        sick = spread_of(self.regions.params)
        if self.regions.buffers.numel():
            sick = sick + spread_of(self.regions.buffers)
        return sick * 0.0

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
        with self.fabric.syncing():
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
        with formed.using() as comm, self.fabric.syncing():
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
        with self.fabric.syncing():
            sums = self._take_params(spans)
        if sums is not None:
            pre, post, apart, fault = sums.tolist()
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

    def _take_buffers(self) -> bool:
        """Overwrite the buffers; return whether there are any."""
        with self.fabric.syncing():
            self.regions.buffers.copy_(self.regions.kept_buffers)
        return self.regions.buffers.numel() > 0

    def _take_params(self, spans: tuple[Run, ...]) -> torch.Tensor | None:
        """Enqueue the adoption; return its sums, if anything is measured."""
        regions, memory, sums = self.regions, self.regions.outer, None
        if self._stepper is not None and memory is not None and memory.steps_next:
            return self._stepper.adopt(regions.params, regions.kept_params, memory, spans)
        if not regions.in_place:
            sums = self._adopter.adopt(regions.params, regions.kept_params, spans)
        if memory is not None:
            for offset, length in spans:
                run = slice(offset, offset + length)
                memory.previous[run] = regions.params[run]
            memory.steps_next = True
        return sums
