"""A rank's part in a cycle on NCCL; the root serves the initial broadcast, and saves.

```
cycle 0        through the star, as on the CPU plane: everybody becomes rank 0
offer, wait    lay out what is not f32 · COUNT, PARAM, BUFFER · adopt · put back
publish        one rank brings the consensus to the launcher, which writes the bundle
```

A cycle that breaks with its session is begun again in the next one, with the same claim;
where another member has completed it, its consensus is taken instead. The schedule is the
pacer's, the messages are the worker's.
"""

import time
from collections.abc import Callable, Generator, Iterator
from typing import Final

import torch

from flodl_core.dispatch.actions import WriteCheckpoint
from flodl_core.errors import RunLostError
from flodl_core.ids import Cycle, Round, RoundOutcome, Session, SyncOutcome
from flodl_core.messages.data import RankTally, RoundEnd
from flodl_core.net import clock
from flodl_core.planes.nccl.cycle import CollectiveCycle
from flodl_core.planes.nccl.keeper import SessionBrokenError, SessionKeeper
from flodl_core.planes.nccl.outer_step import OuterMemory
from flodl_core.planes.nccl.parts import CountClaim, CycleEnd, RankRegions
from flodl_core.planes.nccl.trace import CollectiveTrace
from flodl_core.planes.nccl.waiting import POLL_S
from flodl_core.planes.segment import F32
from flodl_core.planes.slot import SlotHeader
from flodl_core.reduce.buckets import Run
from flodl_core.reduce.velocity_cycles import VELOCITY_DOWN, velocity_up
from flodl_core.training.adopt import copied_segment, is_covered
from flodl_core.training.flat import FlatLayout
from flodl_core.training.frozen import FrozenWatch
from flodl_core.training.nccl_port import NcclPort
from flodl_core.training.rounds import INITIAL_BROADCAST, CycleResult, RankRounds, StarPort
from flodl_core.training.snapshot import Claim, SnapshotVerdict, write_segment
from flodl_core.units import Seconds

RECOVER_S: Final[Seconds] = 60.0
"""Longest wait of one who has completed a cycle for the session in which it gives it away."""

_LOOK_S: Final[Seconds] = 1.0

_Steps = Generator[None, None, CycleEnd | None]


class NcclRounds(RankRounds):
    """One rank's averages on NCCL, cycle by cycle.

    Args:
        layout: of the rank's model, whose region lies on its device.
        star: its end of the root's plane.
        port: its device and its way out.
        on_adopting: called when a cycle is completed, before the worker hears of it.
        on_counted: told, once a cycle, what this rank contributes.
    """

    def __init__(
        self,
        layout: FlatLayout,
        star: StarPort,
        port: NcclPort,
        *,
        on_adopting: Callable[[], None],
        on_counted: Callable[[Cycle, RankTally], None],
    ) -> None:
        super().__init__(layout, star, on_adopting=on_adopting)
        self._port = port
        self._tell = on_counted
        self._told = INITIAL_BROADCAST
        self._claim: CountClaim | None = None
        self._steps: _Steps | None = None
        self._recovered: Session | None = None
        self._strays: tuple[str, ...] = ()
        self._prepared: int | None = None
        self.keeper = SessionKeeper(port.rank, port.fabric, post=port.post, note=port.note)
        port.listen(self.keeper.heed)
        region = layout.region
        buffers = region.new_zeros(layout.geometry.buffers_numel)
        self._regions = RankRegions(
            params=region,
            buffers=buffers,
            kept_params=region if port.in_place else torch.zeros_like(region),
            kept_buffers=torch.zeros_like(buffers),
            outer=(
                OuterMemory(torch.zeros_like(region), torch.zeros_like(region))
                if port.outer.has_velocity
                else None
            ),
        )
        self._cycles = CollectiveCycle(
            geometry=layout.geometry,
            regions=self._regions,
            rank=port.rank,
            world_size=port.world_size,
            fabric=port.fabric,
            keeper=self.keeper,
            outer=port.outer,
            trace=CollectiveTrace(port.record, park=port.park),
            on_counted=self._counted,
        )
        kept = None if port.in_place else self._regions.kept_params
        previous = self._regions.outer.previous if self._regions.outer else None
        self._frozen = FrozenWatch(layout, region, previous if kept is None else kept)
        if self._cycles.why_not_fused:
            port.note("adoption_not_fused", self._cycles.why_not_fused)

    def new_uid(self) -> bytes:
        """Return the uid of the first session."""
        return self.keeper.new_uid()

    def meet(self, uid: bytes) -> None:
        """Begin to form the first session."""
        self.keeper.form_first(uid, size=self._port.world_size)

    def prepare(self, samples: int) -> None:
        """The window is full: do now what the cycle would begin with, while its call is awaited.

        Args:
            samples: drawn since the last cycle; another number at `offer` undoes this.

        Raises:
            SchemaDriftError: the model's tensors changed.
        """
        self._strays = self._layout.gather_strays()
        self._lay_out()
        self._frozen.look()
        self._cycles.prepare()
        self._prepared = samples

    def forget(self) -> None:
        """Somebody may have changed the model since `prepare`."""
        self._prepared = None
        self._cycles.forget()

    def offer(self, claim: Claim) -> SnapshotVerdict | None:
        """Lay out what this rank has; None after cycle 0, where the count tells what it is.

        Raises:
            SchemaDriftError: the model's tensors changed.
        """
        if claim.cycle == INITIAL_BROADCAST:
            return super().offer(claim)
        if self._prepared != claim.samples:
            self.prepare(claim.samples)
        self._prepared = None
        self._frozen.flag()
        self._claim = CountClaim(
            cycle=claim.cycle,
            n=claim.n,
            samples=claim.samples,
            gamma=claim.gamma,
            unfrozen=self._layout.unfrozen(),
        )
        return None

    def wait(self, timeout_s: Seconds) -> CycleResult | None:
        """Go on with the cycle for so long; return the result if it is over, else call again.

        Raises:
            RunLostError: the host's relay or launcher is gone.
            CollectiveError: the library refused, or this rank could not join a session.
        """
        if self._claim is None:
            result = super().wait(timeout_s)
            if result is not None and result.cycle == INITIAL_BROADCAST:
                self._lay_out()
                self._cycles.take_initial()
                self._frozen.begin()
                if self._port.begins_stepped:
                    self._take_velocity()
            return result
        until = clock.now() + timeout_s
        while clock.now() < until:
            if self._steps is None and not self._begin(self._claim):
                time.sleep(POLL_S)
                continue
            end = self._advance()
            if end is not None:
                return self._result(end)
        return None

    def give(self, session: Session) -> None:
        """Give what this rank has completed to those who have not, as first act of a session.

        Returns without that if the session breaks or forms too late: there is another then.
        """
        if self._claim is not None:
            return
        until = clock.now() + RECOVER_S
        while clock.now() < until and self.keeper.newest <= session and not self.keeper.is_over:
            formed = self.keeper.usable
            if formed is None or formed.session < session:
                time.sleep(POLL_S)
                continue
            self._recovered = formed.session
            self._steps = self._cycles.recover(formed, None)
            self._advance_to_the_end()
            return

    def publish(self, action: WriteCheckpoint) -> str | None:
        """Take part in the cycles of the root in which one rank brings the consensus.

        What was committed last, that is: after an average in which nobody was finite, ranks
        hold something else. Where no buffer is kept, there is only what they hold.

        An outer velocity goes before it, once there is one. To be called between an average
        and the next batch, by all ranks.

        Returns:
            What went wrong; None if nothing did.

        Raises:
            RunLostError: the host's relay or launcher is gone.
        """
        cycle, is_asked = action.publish, action.tells_locals
        if cycle is None:
            return None
        brings = is_asked and self._cycles.holds_consensus
        memory, slot = self._regions.outer, self._star.slot
        is_whole = True
        if memory is not None and memory.steps_next:
            if brings:
                self._download(memory.velocity, slot.params)
            is_whole = self._move_region(velocity_up(cycle), brings=brings)
        if brings:
            committed = self._regions.kept_params if memory is None else memory.previous
            if self._regions.in_place:
                self._lay_out()
            self._download(committed, slot.params)
            torch.from_numpy(slot.buffers).copy_(self._regions.kept_buffers)
        is_whole &= self._move_region(cycle, brings=brings)
        if is_asked and not brings:
            return "a death spoilt what this rank kept, and its own values are not finite"
        if brings and not is_whole:
            return "the launcher did not take this rank's values as a whole"
        return None

    def _take_velocity(self) -> None:
        """Take the velocity that a resumed run goes on with; a rank's own is 0 before.

        Every rank brings zeros, in whose place the root puts what it was given, so that the
        cycle comes about whoever is lost before it.
        """
        memory, slot = self._regions.outer, self._star.slot
        assert memory is not None
        slot.params[:] = 0.0
        slot.buffers[:] = 0.0
        if self._move_region(VELOCITY_DOWN, brings=True):
            came = self._star.staging.params
            if self._layout.copies is not None:
                self._layout.copies.upload(came, memory.velocity, (Run(0, came.size),))
            else:
                memory.velocity.copy_(torch.from_numpy(came.copy()))
        memory.steps_next = True

    def _download(self, values: torch.Tensor, target: F32) -> None:
        if self._layout.copies is not None:
            self._layout.copies.download(values, target)
        else:
            torch.from_numpy(target).copy_(values)

    def _move_region(self, cycle: Cycle, *, brings: bool) -> bool:
        """Take part in a cycle of the root's own; return if it committed.

        Args:
            cycle: its number.
            brings: whether the slot holds what is to be moved.
        """
        slot, mass = self._star.slot, 1.0 if brings else 0.0
        slot.set_unfrozen([True] * len(self._layout.geometry.params))
        slot.write_header(
            SlotHeader(
                cycle=cycle,
                n=int(brings),
                samples=0,
                mass_params=mass,
                mass_buffers=mass,
                declared=False,
            )
        )
        self._star.ready(cycle)
        committed = False
        for end in self._rounds_of(cycle):
            if end.round is Round.PARAMS:
                committed = end.outcome is RoundOutcome.COMMITTED
        return committed

    def _rounds_of(self, cycle: Cycle) -> Iterator[RoundEnd]:
        while True:
            try:
                end = self._star.wait_round(_LOOK_S)
            except TimeoutError:
                if self.keeper.is_over:
                    raise RunLostError("the controller is gone") from None
                continue
            if end.cycle != cycle:
                continue
            yield end
            if self._star.ends_cycle(end):
                return

    def close(self) -> None:
        """Give the communicator back."""
        if self._port.fabric.why_not_recorded:
            self._port.note("adoption_not_recorded", self._port.fabric.why_not_recorded)
        self.abandon()
        super().close()

    def abandon(self) -> None:
        """Abort what is under way: what the device is given next would wait for it."""
        self.keeper.close()
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    # a cycle

    def _begin(self, claim: CountClaim) -> bool:
        formed = self.keeper.usable
        if formed is None:
            return False
        if formed.source is not None and self._recovered != formed.session:
            self._recovered = formed.session
            self._steps = self._cycles.recover(formed, claim.cycle)
        else:
            self._steps = self._cycles.run(claim, formed)
        return True

    def _advance(self) -> CycleEnd | None:
        """Take one step; a session that breaks ends the steps, and nothing else."""
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration as stop:
            self._steps = None
            end: CycleEnd | None = stop.value
            return end
        except SessionBrokenError:
            self._steps = None
            self._port.park("")
        return None

    def _advance_to_the_end(self) -> None:
        while self._steps is not None:
            self._advance()

    def _counted(self, tally: RankTally) -> None:
        claim = self._claim
        if claim is not None and claim.cycle != self._told:
            self._told = claim.cycle
            self._tell(claim.cycle, tally)

    def _result(self, end: CycleEnd) -> CycleResult:
        claim = self._claim
        assert claim is not None
        self._claim = None
        self._on_adopting()
        if end.outcome is not SyncOutcome.UNREALIZED:
            self._put_back(end.spans, with_buffers=end.took_buffers)
        return CycleResult(
            cycle=end.cycle,
            outcome=end.outcome,
            samples=claim.samples,
            divergence=end.divergence,
            resets_state=end.outcome is SyncOutcome.DECLINED,
            is_unstepped=end.is_unstepped,
            strays=self._strays,
        )

    # what does not live in the regions

    def _lay_out(self) -> None:
        """Write parameters of other dtypes or strides, and all buffers, into the regions."""
        with torch.no_grad():
            for placed in self._layout.params:
                if not placed.in_region:
                    write_segment(self._regions.params, placed.segment, placed.home)
            for buffer in self._layout.buffers:
                write_segment(self._regions.buffers, buffer.segment, buffer.primary.current())

    def _put_back(self, spans: tuple[Run, ...], *, with_buffers: bool) -> None:
        with torch.no_grad():
            for placed in self._layout.params:
                if not placed.in_region and is_covered(placed.segment, spans):
                    values = copied_segment(self._regions.params, placed.segment)
                    placed.home.copy_(values.view(placed.segment.shape))
            for buffer in self._layout.buffers if with_buffers else ():
                values = copied_segment(self._regions.buffers, buffer.segment)
                for name in buffer.names:
                    view = name.view
                    name.current().copy_(
                        values.as_strided(view.shape, view.strides, view.storage_offset)
                    )
