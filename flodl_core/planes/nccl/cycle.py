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
leaves values that are neither old nor new.

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
from flodl_core.planes.nccl.collective import Collective, CommState, Fabric, Pair
from flodl_core.planes.nccl.fused import Adopter, spread_of
from flodl_core.planes.nccl.keeper import FormedSession, SessionBrokenError, SessionKeeper
from flodl_core.planes.nccl.trace import CollectiveTrace
from flodl_core.planes.nccl.waiting import looks
from flodl_core.planes.segment import F64
from flodl_core.reduce.buckets import Run, active_segments, active_spans, buffer_spans
from flodl_core.reduce.divergence import Divergence, triple_of_sums
from flodl_core.reduce.mass import gamma_mass, is_realized, mover_mass

_PARTS_A_RANK: Final = 3


@dataclass(slots=True)
class RankRegions:
    """What a rank averages, flat and f32 on its device.

    Attributes:
        params: where the parameters live, or are laid for the cycle.
        buffers: likewise the floating-point buffers.
        kept_params: gets the consensus; `params` itself where none is kept.
        kept_buffers: likewise.
    """

    params: torch.Tensor
    buffers: torch.Tensor
    kept_params: torch.Tensor
    kept_buffers: torch.Tensor

    @property
    def in_place(self) -> bool:
        """Whether PARAM changes the parameters while it runs."""
        return self.kept_params is self.params


@dataclass(frozen=True, slots=True, kw_only=True)
class CountClaim:
    """What a rank would contribute if its values are finite."""

    cycle: Cycle
    n: int
    samples: int
    gamma: float
    unfrozen: Sequence[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEnd:
    """How a cycle ended for this rank.

    Attributes:
        spans: the parameters that took part; empty if nothing was adopted.
        divergence: absent where nothing was adopted, or in place of it.
        took_buffers: whether the kept buffers hold new values.
    """

    cycle: Cycle
    outcome: SyncOutcome
    spans: tuple[Run, ...] = ()
    divergence: Divergence | None = None
    took_buffers: bool = False


@dataclass(frozen=True, slots=True)
class _Count:
    mine: RankTally
    mass: float
    movers: float
    spans: tuple[Run, ...]


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
    """

    geometry: Geometry
    regions: RankRegions
    rank: Rank
    world_size: int
    fabric: Fabric
    keeper: SessionKeeper
    trace: CollectiveTrace = field(default_factory=CollectiveTrace)
    on_counted: Callable[[RankTally], None] = lambda _: None
    """Told what this rank contributes, once it is known and before anything else moves."""
    _adopter: Adopter = field(init=False)
    _spans: dict[bytes, tuple[Run, ...]] = field(init=False, default_factory=dict)
    _realized: bool = field(init=False, default=False)
    """Whether the newest completed cycle had a consensus."""

    def __post_init__(self) -> None:
        """Choose how to adopt on this device."""
        self._adopter = Adopter(self.fabric.device)

    @property
    def why_not_fused(self) -> str:
        """Why adoption takes more than one pass on a GPU; empty if it does not."""
        return self._adopter.why_not

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
            self._complete(formed, claim.cycle, realized=False)
            return CycleEnd(cycle=claim.cycle, outcome=SyncOutcome.UNREALIZED)
        yield from self._reduce(claim, count, formed)
        self._complete(formed, claim.cycle, realized=True)
        return self._adopt(claim.cycle, count.spans, declared=count.mine.declared)

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
        header = torch.tensor(
            [float(self.keeper.completed), float(self._realized)],
            dtype=torch.float64,
            device=self.fabric.device,
        )
        yield from self._enter(
            "RECOVER", formed, lambda comm: comm.broadcast(header, root), cycle=pending
        )
        completed, realized = header.tolist()
        if realized:
            for name, values in self._kept():
                yield from self._enter(
                    name,
                    formed,
                    lambda comm, values=values: comm.broadcast(values, root),  # type: ignore[misc]
                    cycle=pending,
                )
        if pending is None or pending != int(completed):
            return None
        self._complete(formed, pending, realized=bool(realized))
        if not realized:
            return CycleEnd(cycle=pending, outcome=SyncOutcome.UNREALIZED)
        everything = active_spans(self.geometry, (True,) * len(self.geometry.params))
        return self._adopt(pending, everything, declared=False)

    def take_initial(self) -> None:
        """Keep what the initial broadcast brought, frozen parameters too."""
        if not self.regions.in_place:
            self.regions.kept_params.copy_(self.regions.params)
        self.regions.kept_buffers.copy_(self.regions.buffers)

    def _kept(self) -> tuple[tuple[str, torch.Tensor], ...]:
        kept = (
            ("RECOVER-PARAM", self.regions.kept_params),
            ("RECOVER-BUFFER", self.regions.kept_buffers),
        )
        return tuple((name, values) for name, values in kept if values.numel())

    def _complete(self, formed: FormedSession, cycle: Cycle, *, realized: bool) -> None:
        self.keeper.complete(formed, cycle)
        self._realized = realized

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
            spans=self._spans_of(claim.cycle, flags_of(found, world)),
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
        self, claim: CountClaim, count: _Count, formed: FormedSession
    ) -> Generator[None, None, None]:
        regions, n = self.regions, count.mine.n
        factor = gamma_mass(n, claim.gamma) / count.mass
        self.keeper.risk(is_damaged=regions.in_place)
        with self.fabric.syncing():
            params = _pairs(regions.params, regions.kept_params, count.spans, factor=factor)
            buffers = _pairs(
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
        regions = self.regions
        outcome = SyncOutcome.DECLINED if declared else SyncOutcome.COMMITTED
        divergence: Divergence | None = None
        with self.fabric.syncing():
            regions.buffers.copy_(regions.kept_buffers)
            if not regions.in_place:
                sums = self._adopter.adopt(regions.params, regions.kept_params, spans)
        if not (regions.in_place or declared):
            pre, post, apart = sums.tolist()
            divergence = triple_of_sums(pre, post, apart, is_empty=not spans)
        return CycleEnd(
            cycle=cycle,
            outcome=outcome,
            spans=spans,
            divergence=divergence,
            took_buffers=regions.buffers.numel() > 0,
        )


def _pairs(
    source: torch.Tensor, target: torch.Tensor, spans: Sequence[Run], *, factor: float
) -> list[Pair]:
    """Return what is sent and where it goes; whoever weighs nothing sends zeros."""
    pairs = []
    for offset, length in spans:
        into = target[offset : offset + length]
        if factor > 0.0:
            pairs.append((source[offset : offset + length], into))
        else:
            into.zero_()
            pairs.append((into, into))
    return pairs
