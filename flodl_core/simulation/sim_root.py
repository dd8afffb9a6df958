"""The root of the star: barrier over hosts, bucket by bucket, commit at RoundEnd.

What it is: the rules of the real root on a virtual clock. A cycle begins when every
host with a rank that is not declared dead has sent its control vector; from then on
its members can only become fewer, by a link that breaks. Sum, divisor and the ranks
of a bucket come from one list. The coordinator hears of a round's end first.
What it is not: threads, sockets, shared memory.
Who drives it: `simulation.world`; the oracles watch every bucket and commit.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from flodl_core.coordinator.events import RoundEnded
from flodl_core.ids import Cycle, HostName, Rank, Round, RoundOutcome
from flodl_core.messages.data import BucketFrame, RankTally, RoundEnd
from flodl_core.messages.mux import RelayDeclareDead
from flodl_core.planes.velocity import OuterState
from flodl_core.reduce.fold import Fold, Term
from flodl_core.reduce.mass import is_realized
from flodl_core.reduce.outer import OuterAvg, OuterStep, rule_of
from flodl_core.relay.machine import following_round
from flodl_core.simulation.scenario import Scenario
from flodl_core.simulation.sim_host import Bucket
from flodl_core.simulation.tiny_model import BUFFERS_A_BUCKET, F32, F64, PARAMS_A_BUCKET


@dataclass(frozen=True, slots=True)
class Committed:
    """The values of one whole commit."""

    version: int
    params: F32
    buffers: F32
    buffers_realized: bool
    cycle: int = 0
    outer: OuterState = field(default_factory=OuterState)


class RootWatcher(Protocol):
    """Who looks at what the root does."""

    def bucket_formed(self, frame: BucketFrame, values: F32) -> None:
        """A bucket of the consensus was formed from the ranks in its frame."""

    def cycle_committed(self, committed: Committed) -> None:
        """A cycle committed as a whole."""


@dataclass(slots=True)
class HostSide:
    """A host, as the root accounts for it."""

    host: HostName
    ranks: tuple[Rank, ...]
    send_bucket: Callable[[Bucket], None]
    send: Callable[[object], None]
    alive: set[Rank] = field(default_factory=set)
    dropped: bool = False
    heads: deque[Bucket] = field(default_factory=deque)

    @property
    def expected(self) -> bool:
        """Whether the barrier waits for it."""
        return not self.dropped and bool(self.alive)

    def is_in(self, cycle: Cycle) -> bool:
        """Whether its control vector of this cycle is here."""
        if self.dropped or not self.heads:
            return False
        frame = self.heads[0].frame
        return frame.round is Round.CONTROL and frame.cycle == cycle


@dataclass(slots=True)
class _Round:
    """The values round under way."""

    round: Round
    forming: F32
    width: int
    count: int
    index: int = 0
    realized: bool = False
    mass: float = 0.0
    ranks: tuple[Rank, ...] = ()
    velocity: F32 | None = None
    """What the outer velocity becomes; None if the round is not stepped."""


class SimRoot:
    """One root."""

    def __init__(
        self,
        scenario: Scenario,
        hosts: list[HostSide],
        *,
        report: Callable[[RoundEnded], None],
        watcher: RootWatcher,
    ) -> None:
        self._scenario, self._hosts = scenario, hosts
        self._report, self._watcher = report, watcher
        self._fold = Fold()
        self._last_cycle = -1
        self._cycle: Cycle | None = None
        self._members: list[HostSide] = []
        self._tallies: tuple[RankTally, ...] = ()
        self._round: _Round | None = None
        self._params: F32 = np.zeros(scenario.param_buckets * PARAMS_A_BUCKET, np.float32)
        self._buffers: F32 = np.zeros(scenario.buffer_buckets * BUFFERS_A_BUCKET, np.float32)
        self._params_committed = False
        rule = rule_of(scenario.outer)
        self._outer = None if isinstance(rule, OuterAvg) else OuterStep(rule)
        known = scenario.saved.outer if scenario.saved is not None else OuterState()
        self._steps_next = known.steps_next
        self._velocity: F32 = np.zeros_like(self._params)
        if known.velocity is not None:
            self._velocity = known.velocity.copy()
        self.committed: Committed | None = None

    def declare_dead(self, rank: Rank) -> None:
        """Stop waiting for a rank and tell its host."""
        for host in self._hosts:
            if rank in host.alive:
                host.alive.discard(rank)
                host.send(RelayDeclareDead(rank=rank))
        self.advance()

    def drop_host(self, name: HostName) -> None:
        """Go on without a host whose link ended."""
        for host in self._hosts:
            if host.host == name:
                host.dropped = True
        self.advance()

    def take_bucket(self, host: HostSide, bucket: Bucket) -> None:
        """A bucket of a host arrived."""
        if not host.dropped:
            host.heads.append(bucket)
            self.advance()

    def advance(self) -> None:
        """Do whatever needs no further arrival."""
        while self._begin() if self._cycle is None else self._form():
            pass

    def _begin(self) -> bool:
        for host in self._hosts:
            while host.heads and host.heads[0].frame.cycle <= self._last_cycle:
                self._turn_away(host)
        cycles = [host.heads[0].frame.cycle for host in self._hosts if host.heads]
        cycle = max(cycles, default=None)
        if cycle is None or not all(h.is_in(cycle) for h in self._hosts if h.expected):
            return False
        self._members = [host for host in self._hosts if host.is_in(cycle)]
        if not self._members:
            return False
        self._cycle = cycle
        self._params_committed = False
        self._count()
        return True

    def _turn_away(self, host: HostSide) -> None:
        frame = host.heads.popleft().frame
        if frame.round is Round.CONTROL and not host.dropped:
            host.send(
                RoundEnd(
                    cycle=frame.cycle,
                    round=Round.CONTROL,
                    outcome=RoundOutcome.FAILED,
                    ranks_accepted=(),
                    mass=0.0,
                )
            )

    def _count(self) -> None:
        """The control round: a pure sum."""
        world = self._scenario.world_size
        vector: F64 = np.zeros(3 * world, np.float64)
        mass = 0.0
        ranks: list[Rank] = []
        for host in self._members:
            bucket = host.heads.popleft()
            vector += bucket.values
            mass += bucket.frame.mass
            ranks += bucket.frame.ranks
        self._tallies = tuple(
            RankTally(
                rank=rank,
                n=int(vector[rank]),
                samples=int(vector[world + rank]),
                declared=bool(vector[2 * world + rank]),
            )
            for rank in sorted(ranks)
        )
        self._send_down(Round.CONTROL, 0, 1, mass=mass, ranks=tuple(sorted(ranks)), values=vector)
        self._end(Round.CONTROL, realized=is_realized(mass), mass=mass, ranks=tuple(sorted(ranks)))

    def _start(self, round_: Round) -> None:
        buffers = round_ is Round.BUFFERS
        is_stepped = self._outer is not None and not buffers and self._steps_next
        self._round = _Round(
            round=round_,
            forming=(self._buffers if buffers else self._params).copy(),
            width=BUFFERS_A_BUCKET if buffers else PARAMS_A_BUCKET,
            count=self._scenario.buffer_buckets if buffers else self._scenario.param_buckets,
            velocity=self._velocity.copy() if is_stepped and self._cycle != 0 else None,
        )

    def _form(self) -> bool:
        """Form the next bucket if every member that is still there has sent its part."""
        forming = self._round
        assert forming is not None
        self._members = [host for host in self._members if not host.dropped]
        if not all(host.heads for host in self._members):
            return False
        parts = [host.heads.popleft() for host in self._members]
        for part in parts:
            frame = part.frame
            got = (frame.cycle, frame.round, frame.index)
            assert got == (self._cycle, forming.round, forming.index), f"{frame} out of turn"
        heavy = [part for part in parts if part.frame.mass > 0]
        mass = sum(part.frame.mass for part in parts)
        ranks = tuple(sorted(rank for part in parts for rank in part.frame.ranks))
        place = slice(forming.index * forming.width, (forming.index + 1) * forming.width)
        if heavy:
            terms = [Term(np.asarray(part.values, np.float32), 1.0) for part in heavy]
            self._fold.combine(forming.forming[place], terms, divisor=mass)
            if self._outer is not None and forming.velocity is not None:
                is_finite = self._outer.step(
                    forming.forming[place],
                    previous=self._params[place],
                    before=self._velocity[place],
                    after=forming.velocity[place],
                )
                assert is_finite, "simulated values are small"
            saved = self._scenario.saved
            if self._cycle == 0 and saved is not None:
                whole = saved.buffers if forming.round is Round.BUFFERS else saved.params
                forming.forming[place] = whole[place]
            forming.realized = True
        self._send_down(
            forming.round,
            forming.index,
            forming.count,
            mass=mass,
            ranks=ranks,
            values=forming.forming[place].copy(),
        )
        forming.mass, forming.ranks = mass, ranks
        forming.index += 1
        if forming.index == forming.count:
            self._round = None
            self._commit(forming)
        return True

    def _commit(self, done: _Round) -> None:
        if done.realized and done.round is Round.PARAMS:
            self._params, self._params_committed = done.forming, True
            if done.velocity is not None:
                self._velocity = done.velocity
            self._steps_next |= self._cycle != 0
        elif done.realized:
            self._buffers = done.forming
        self._end(done.round, realized=done.realized, mass=done.mass, ranks=done.ranks)

    def _end(self, round_: Round, *, realized: bool, mass: float, ranks: tuple[Rank, ...]) -> None:
        assert self._cycle is not None
        outcome = RoundOutcome.COMMITTED if realized else RoundOutcome.UNREALIZED
        cycle, tallies = self._cycle, self._tallies
        following = following_round(round_, outcome, has_buffers=self._scenario.buffer_buckets > 0)
        if following is None and self._params_committed:
            self.committed = Committed(
                cycle or self._scenario.first_version,
                self._params,
                self._buffers,
                realized or round_ is Round.PARAMS,
                cycle,
                OuterState(self._velocity, self._steps_next),
            )
            self._watcher.cycle_committed(self.committed)
        self._report(RoundEnded(cycle, round_, outcome, ranks, mass, tallies))
        end = RoundEnd(cycle=cycle, round=round_, outcome=outcome, ranks_accepted=ranks, mass=mass)
        for host in self._members:
            if not host.dropped:
                host.send(end)
        if following is None:
            self._last_cycle, self._cycle = cycle, None
            self._members, self._tallies = [], ()
        else:
            self._start(following)

    def _send_down(
        self,
        round_: Round,
        index: int,
        count: int,
        *,
        mass: float,
        ranks: tuple[Rank, ...],
        values: F32 | F64,
    ) -> None:
        assert self._cycle is not None
        frame = BucketFrame(
            cycle=self._cycle,
            round=round_,
            index=index,
            count=count,
            mass=mass,
            ranks=ranks,
            nbytes=values.nbytes,
            dtype="f64" if round_ is Round.CONTROL else "f32",
        )
        if round_ is not Round.CONTROL:
            self._watcher.bucket_formed(frame, np.asarray(values, np.float32))
        for host in self._members:
            if not host.dropped:
                host.send_bucket(Bucket(frame, values))
