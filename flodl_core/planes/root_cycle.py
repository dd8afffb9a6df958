"""The root's cycles, one after the other, in its own thread.

A cycle begins when every expected contributor has shown itself: all alive local ranks
by their marks, every worker host that still has an alive rank by its control vector.
From then on the contributors are fixed; they can only become fewer, by a link that
breaks. The sum, the divisor and `ranks_accepted` of a bucket come from one list.

Where ranks average among themselves no cycle here is an average: it moves what one rank, or
the root, has. That counts as a whole or not at all: what was committed last is another thing.

Waits are for peers only: each ends with the contribution, with the death or drop of
the contributor, or with the root's stop.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flodl_core.coordinator.events import RoundEnded
from flodl_core.ids import Cycle, Rank, Round, RoundOutcome, WireDtype
from flodl_core.messages.data import BucketFrame, RankTally, RoundEnd
from flodl_core.messages.job import Envelope
from flodl_core.planes.bucket_former import BucketFormer
from flodl_core.planes.consensus import Consensus
from flodl_core.planes.control_vector import merge_ranks, tallies_of
from flodl_core.planes.event_loop import PlaneLoop
from flodl_core.planes.host_port import ArrivedBucket
from flodl_core.planes.local_group import LONGEST_WAIT_S, LocalGroup, NoteSink
from flodl_core.planes.round_plan import RoundPlan, control_frame, plan_buffers, plan_params
from flodl_core.planes.segment import F32
from flodl_core.planes.worker_hosts import WorkerHost, WorkerHosts
from flodl_core.reduce.fold import Term
from flodl_core.reduce.mass import is_realized
from flodl_core.reduce.outer import rule_of
from flodl_core.reduce.velocity_cycles import VELOCITY_DOWN
from flodl_core.relay.machine import Note, ShipRound, following_round

Report = Callable[[RoundEnded], None]


class RootStopped(Exception):
    """The root was stopped while it waited."""


@dataclass(slots=True)
class _Member:
    """A worker host in the cycle under way; mass and movers are those of the current round."""

    peer: WorkerHost
    control_mass: float
    ranks: tuple[Rank, ...]
    mass: float = 0.0
    movers: tuple[Rank, ...] = ()


class RootCycles:
    """Runs cycles until stopped.

    Attributes:
        moved_bytes: values that came from and went to worker hosts.
    """

    def __init__(
        self,
        envelope: Envelope,
        loop: PlaneLoop,
        consensus: Consensus,
        *,
        peers: WorkerHosts,
        group: LocalGroup | None,
        reports: tuple[Report, NoteSink | None],
    ) -> None:
        """Prepare; `run` begins.

        Args:
            envelope: of the run.
            loop: of the root's thread.
            consensus: over a staging segment of two sides.
            peers: the worker hosts.
            group: the launcher's own ranks, if there are any.
            reports: who is told of a round's end before anybody else, and of notes.
        """
        self.moved_bytes = 0
        self._geometry = envelope.geometry
        self._world_size = envelope.world_size
        self._wire = WireDtype(envelope.spec.wire_dtype)
        self._needs_whole = envelope.spec.mode.uses_nccl
        self._loop = loop
        self._consensus = consensus
        self._peers = peers
        self._group = group
        self._report, self._on_note = reports
        self._former = BucketFormer(rule_of(envelope.spec.outer))
        self._initial: dict[tuple[Cycle, Round], F32] = {}
        self._last_cycle = Cycle(-1)
        self._members: list[_Member] = []
        self._tallies: tuple[RankTally, ...] = ()
        self._control_bytes = consensus.staging.control.nbytes
        self._is_stopping = False

    def begin_with(self, initial: Mapping[Round, F32]) -> None:
        """Have the initial broadcast bring these regions to everybody; before `run`.

        They take the place of what rank 0 has, and are let go once they are committed.
        """
        self._initial.update({(Cycle(0), round_): region for round_, region in initial.items()})

    def give_velocity(self, velocity: F32 | None) -> None:
        """Have the cycle behind the initial broadcast bring this velocity to all; before `run`.

        None is 0 everywhere, which all of them bring.
        """
        if velocity is not None:
            self._initial[VELOCITY_DOWN, Round.PARAMS] = velocity

    def stop(self) -> None:
        """Make `run` raise soon; from any thread."""
        self._is_stopping = True
        self._loop.wake()

    def run(self) -> None:
        """Run cycle after cycle.

        Raises:
            RootStopped: `stop` was called.
        """
        while True:
            self._until(self._barrier_is_full)
            self._run_cycle()

    def _until(self, condition: Callable[[], bool]) -> None:
        self._loop.run_posted()
        while True:
            if self._is_stopping:
                raise RootStopped
            if condition():
                return
            if self._group is not None:
                self._group.wait()
            else:
                self._loop.wait(LONGEST_WAIT_S)

    def _drop(self, peer: WorkerHost, reason: str) -> None:
        peer.drop()
        if self._on_note is not None:
            self._on_note(Note(code="host_dropped", fields={"host": peer.host, "reason": reason}))

    # the barrier

    def _local_ship(self) -> ShipRound | None:
        """The local ranks' control round, if it waits to be run."""
        due = self._group.due if self._group is not None else ()
        return next((effect for effect in due if isinstance(effect, ShipRound)), None)

    def _barrier_is_full(self) -> bool:
        self._sort_out_heads()
        cycle = self._next_cycle()
        if cycle is None:
            return False
        is_waiting = self._group is not None and self._group.has_alive_ranks
        if is_waiting and self._local_ship() is None:
            return False
        return all(peer.is_in(cycle) for peer in self._peers.expected())

    def _sort_out_heads(self) -> None:
        """Turn late control vectors away; drop a host that sends anything else between cycles."""
        expected = self._next_cycle()
        for peer in self._peers.linked():
            while (head := peer.head()) is not None and head.cycle <= self._last_cycle:
                self._turn_away(peer)
            if head is None:
                continue
            fits = head.nbytes == self._control_bytes and head.dtype == "f64"
            if head.round is not Round.CONTROL or not fits or head.cycle != expected:
                self._drop(peer, f"it sent the {head.round} round of cycle {head.cycle} too early")

    def _next_cycle(self) -> Cycle | None:
        """The cycle that contributors have shown themselves for."""
        ship = self._local_ship()
        if ship is not None:
            return ship.cycle
        heads = [head.cycle for peer in self._peers.linked() if (head := peer.head()) is not None]
        return max(heads, default=None)

    def _turn_away(self, peer: WorkerHost) -> None:
        """Tell a host whose ranks were given up before its vector came that the cycle is over."""
        port = peer.open_port()
        late = port.take()
        port.give_back(late)
        if late.frame.round is not Round.CONTROL:
            return
        cycle = late.frame.cycle
        self._note("late_control_vector", host=peer.host, cycle=cycle)
        failed = RoundEnd(
            cycle=cycle,
            round=Round.CONTROL,
            outcome=RoundOutcome.FAILED,
            ranks_accepted=(),
            mass=0.0,
        )
        if not peer.send(failed):
            self._drop(peer, "its link does not take messages")

    # a cycle

    def _run_cycle(self) -> None:
        cycle = self._next_cycle()
        assert cycle is not None
        end = self._control_round(cycle)
        ends: list[RoundEnd] = []
        while True:
            following = following_round(
                end.round, end.outcome, has_buffers=self._geometry.buffers_numel > 0
            )
            if following is None:
                self._conclude(cycle, ends)
            self._announce(end)
            if following is None:
                break
            end = self._values_round(self._plan(cycle, following))
            ends.append(end)
        self._last_cycle = cycle
        self._members, self._tallies = [], ()
        if self._group is not None:
            self._group.fold.clear()

    def _conclude(self, cycle: Cycle, ends: Sequence[RoundEnd]) -> None:
        """Make a cycle a version if it counts; one that had to be whole and is not leaves none."""
        committed = [end.round for end in ends if end.outcome is RoundOutcome.COMMITTED]
        if Round.PARAMS in committed and (len(committed) == len(ends) or not self._needs_whole):
            self._consensus.finish(cycle)
        elif self._needs_whole:
            self._consensus.take_back()

    def _announce(self, end: RoundEnd) -> None:
        """Tell the coordinator, then everybody else."""
        self._report(
            RoundEnded(
                cycle=end.cycle,
                round=end.round,
                outcome=end.outcome,
                ranks_accepted=end.ranks_accepted,
                mass=end.mass,
                tallies=self._tallies,
                unstepped_buckets=self._former.take_unstepped(),
            )
        )
        for member in self._members:
            if not member.peer.send(end):
                self._drop(member.peer, "its link does not take messages")
        if self._group is not None and self._group.is_in(end):
            self._group.end_round(end)
            self._group.due.clear()

    def _control_round(self, cycle: Cycle) -> RoundEnd:
        """Sum the control vectors of everybody who is in, and send the sum down."""
        ship = self._local_ship()
        if self._group is not None and ship is not None:
            self._group.due.clear()
            self._group.freeze(ship)
        staging = self._consensus.staging
        staging.begin_cycle(cycle)
        staging.control.fill(0.0)
        mass = 0.0
        ranks: list[tuple[Rank, ...]] = []
        if self._group is not None:
            staging.control[:] = self._group.fold.control
            mass += self._group.fold.mass(Round.CONTROL)
            ranks.append(self._group.fold.ranks)
        self._members = []
        for peer in self._peers.linked():
            if not peer.is_in(cycle):
                continue
            port = peer.open_port()
            arrived = port.take()
            vector, frame = arrived.f64(), arrived.frame
            if np.isfinite(vector).all():
                staging.control += vector
                mass += frame.mass
                ranks.append(frame.ranks)
                self._members.append(_Member(peer, frame.mass, frame.ranks))
            else:
                self._drop(peer, "its control vector holds a value that is not finite")
            port.give_back(arrived)
        everybody = merge_ranks(ranks)
        self._tallies = tallies_of(staging.control, self._world_size, everybody)
        frame = control_frame(cycle, staging.control, mass=mass, ranks=everybody)
        self._send_down(frame, staging.control.data)
        return _end_of(cycle, Round.CONTROL, realized=is_realized(mass), mass=mass, ranks=everybody)

    def _plan(self, cycle: Cycle, round_: Round) -> RoundPlan:
        if round_ is Round.BUFFERS:
            return plan_buffers(self._geometry, cycle)
        wire = self._wire if self._consensus.has_committed(Round.PARAMS) else WireDtype.F32
        return plan_params(self._geometry, cycle, self._consensus.staging.control, wire)

    def _values_round(self, plan: RoundPlan) -> RoundEnd:
        """Form every bucket beside the committed values; commit if that counts.

        A part of an average counts, since the rest keeps its last values; what the root was
        given is whole whatever came.
        """
        round_ = plan.round
        self._until(lambda: self._consensus.may_form(round_))
        self._consensus.prepare(plan)
        regions = self._consensus.regions(plan)
        fold = self._group.fold if self._group is not None else None
        own_mass = fold.mass(round_) if fold is not None else 0.0
        own_movers = fold.movers(round_) if fold is not None else ()
        inside = self._begin_members(plan)
        realized: list[bool] = []
        given = self._initial.get((plan.cycle, round_))
        for index, bucket in enumerate(plan.buckets):
            arrived = self._await_members(plan, index)
            inside = [member for member, _ in arrived]
            mass = own_mass + sum(member.mass for member in inside)
            if given is None:
                base = self._former.base(plan, index, regions.committed)
                terms = fold.terms(round_, bucket, base) if fold is not None else []
                terms += [Term(one.values(), 1.0) for member, one in arrived if member.mass > 0]
                values = self._former.form(plan, index, terms=terms, mass=mass, regions=regions)
            else:
                values = self._former.take(plan, index, source=given, target=regions.forming)
            for member, one in arrived:
                member.peer.open_port().give_back(one)
            movers = merge_ranks([own_movers, *(member.movers for member in inside)])
            self._send_down(plan.frame(index, mass=mass, ranks=movers), values.data)
            realized.append(is_realized(mass))
        mass = own_mass + sum(member.mass for member in inside)
        movers = merge_ranks([own_movers, *(member.movers for member in inside)])
        if plan.count == 0:
            realized.append(is_realized(mass))
        counts = all(realized) if self._needs_whole and given is None else any(realized)
        if counts:
            self._consensus.commit(plan)
            self._initial.pop((plan.cycle, round_), None)
        return _end_of(plan.cycle, round_, realized=counts, mass=mass, ranks=movers)

    def _begin_members(self, plan: RoundPlan) -> list[_Member]:
        """Reset the members to what the control round said of them; buckets say it again.

        A host that broke off meanwhile stays as long as buckets of it are there: whether
        they count must not depend on which thread was quicker.
        """
        movers = {tally.rank for tally in self._tallies if tally.n > 0}
        self._members = [
            member
            for member in self._members
            if not member.peer.is_dropped or member.peer.head() is not None
        ]
        for member in self._members:
            member.movers = tuple(rank for rank in member.ranks if rank in movers)
            is_buffers = plan.round is Round.BUFFERS
            member.mass = float(len(member.movers)) if is_buffers else member.control_mass
        return list(self._members)

    def _await_members(self, plan: RoundPlan, index: int) -> list[tuple[_Member, ArrivedBucket]]:
        """Wait for this bucket of every member; who broke off without it is a member no more."""
        self._until(
            lambda: all(
                member.peer.head() is not None or member.peer.is_dropped for member in self._members
            )
        )
        arrived = []
        for member in self._members:
            if member.peer.head() is None:
                continue
            one = member.peer.open_port().take()
            flaw = plan.flaw_of(one.frame, index, mass=member.mass, ranks=member.movers)
            if flaw is None:
                arrived.append((member, one))
            else:
                self._drop(member.peer, flaw)
        self._members = [member for member, _ in arrived]
        self.moved_bytes += sum(one.frame.nbytes for _, one in arrived)
        return arrived

    def _send_down(self, frame: BucketFrame, values: memoryview) -> None:
        for member in self._members:
            if member.peer.is_dropped:
                continue
            if member.peer.send_bucket(frame, values if frame.nbytes else memoryview(b"")):
                self.moved_bytes += frame.nbytes
            else:
                self._drop(member.peer, "its link does not take buckets")

    def _note(self, code: str, **fields: int | str) -> None:
        if self._on_note is not None:
            self._on_note(Note(code=code, fields=fields))


def _end_of(
    cycle: Cycle, round_: Round, *, realized: bool, mass: float, ranks: tuple[Rank, ...]
) -> RoundEnd:
    outcome = RoundOutcome.COMMITTED if realized else RoundOutcome.UNREALIZED
    return RoundEnd(cycle=cycle, round=round_, outcome=outcome, ranks_accepted=ranks, mass=mass)
