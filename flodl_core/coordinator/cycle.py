"""The averaging cycle on the CPU path: Idle or Pending, and the evidence of its end.

What it is: a table of transitions, and what was heard of the pending cycle. A
cycle ends when every alive rank acknowledged *this* cycle; a rank that died
counts as done. A cycle's number is used once.
What it is not: the gate, and not the books: it moves no sample.
Who drives it: `coordinator.averaging`.

    IDLE ─triggered─▶ COUNTING ─control realized─▶ REDUCING ─params, buffers follow─▶ BUFFERING
                          │ control unrealized        │ params, the last               │ buffers
                          ▼                           ▼                                ▼
    IDLE ◀──finished── ADOPTING ◀─────────────────────┴────────────────────────────────┘
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from flodl_core.coordinator.events import RoundEnded
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Cycle, Rank, Round, RoundOutcome
from flodl_core.messages.data import RankTally
from flodl_core.messages.timing import SnapshotReady, SyncAck
from flodl_core.units import Milliseconds, Seconds


class CyclePhase(StrEnum):
    """How far the cycle is; all but IDLE are pending."""

    IDLE = "idle"
    COUNTING = "counting"
    REDUCING = "reducing"
    BUFFERING = "buffering"
    ADOPTING = "adopting"


class CycleStep(StrEnum):
    """What moves a cycle."""

    TRIGGERED = "triggered"
    CONTROL_REALIZED = "control_realized"
    CONTROL_UNREALIZED = "control_unrealized"
    PARAMS_ENDED = "params_ended"
    """Committed or unrealized, and a buffers round follows."""
    PARAMS_ENDED_LAST = "params_ended_last"
    BUFFERS_ENDED = "buffers_ended"
    FINISHED = "finished"
    ABANDONED = "abandoned"


_PENDING = (
    CyclePhase.COUNTING,
    CyclePhase.REDUCING,
    CyclePhase.BUFFERING,
    CyclePhase.ADOPTING,
)

TRANSITIONS: Mapping[tuple[CyclePhase, CycleStep], CyclePhase] = {
    (CyclePhase.IDLE, CycleStep.TRIGGERED): CyclePhase.COUNTING,
    (CyclePhase.COUNTING, CycleStep.CONTROL_REALIZED): CyclePhase.REDUCING,
    (CyclePhase.COUNTING, CycleStep.CONTROL_UNREALIZED): CyclePhase.ADOPTING,
    (CyclePhase.REDUCING, CycleStep.PARAMS_ENDED): CyclePhase.BUFFERING,
    (CyclePhase.REDUCING, CycleStep.PARAMS_ENDED_LAST): CyclePhase.ADOPTING,
    (CyclePhase.BUFFERING, CycleStep.BUFFERS_ENDED): CyclePhase.ADOPTING,
    (CyclePhase.ADOPTING, CycleStep.FINISHED): CyclePhase.IDLE,
    **{(phase, CycleStep.ABANDONED): CyclePhase.IDLE for phase in _PENDING},
}
"""Every pair that is not here is refused and changes nothing."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one rank has said of the pending cycle."""

    ready: SnapshotReady | None = None
    ack: SyncAck | None = None


@dataclass(frozen=True, slots=True)
class EndedCycle:
    """A cycle that is over.

    Attributes:
        outcome: committed, unrealized or failed.
        sync_ms: from its trigger to its end; None if it failed.
        window_ms: from the end of the cycle before to its own; None if either failed.
    """

    cycle: Cycle
    outcome: str
    sync_ms: Milliseconds | None
    window_ms: Milliseconds | None


@dataclass(slots=True)
class _Pending:
    """The cycle under way."""

    cycle: Cycle
    since: Seconds
    entered_at: Seconds
    boundary_wait_ms: Milliseconds = 0.0
    tallies: tuple[RankTally, ...] = ()
    realized: bool = False
    evidence: dict[Rank, Evidence] = field(default_factory=dict)


class CycleMachine:
    """At most one cycle at a time, numbered from 0.

    Args:
        has_buffers: whether a params round is followed by a buffers round.
        after: the cycle that follows the initial one is above this number.
    """

    def __init__(self, *, has_buffers: bool, after: int = 0) -> None:
        self._has_buffers = has_buffers
        self._after = after
        self._phase = CyclePhase.IDLE
        self._pending: _Pending | None = None
        self._next = 0
        self._acknowledged_below = Rank(0)
        self._finished_at: Seconds | None = None
        self._ended: list[EndedCycle] = []
        self.rounds_ended_at: Seconds | None = None
        """When the last round of the cycle under way ended; None while one is to come."""
        self.last_sync_ms: Milliseconds | None = None
        self.last_outcome: str | None = None

    @property
    def phase(self) -> CyclePhase:
        """How far the cycle is."""
        return self._phase

    @property
    def pending(self) -> bool:
        """Whether a cycle is under way."""
        return self._pending is not None

    @property
    def cycle(self) -> Cycle | None:
        """The cycle under way."""
        return self._pending.cycle if self._pending else None

    @property
    def last_cycle(self) -> int:
        """The number of the newest cycle; -1 before the first."""
        return self._next - 1

    @property
    def since(self) -> Seconds | None:
        """When the cycle under way was triggered."""
        return self._pending.since if self._pending else None

    @property
    def entered_at(self) -> Seconds | None:
        """When the newest of its ranks came to the cycle under way, or was lost to it."""
        return self._pending.entered_at if self._pending else None

    def note_entry(self, now: Seconds) -> None:
        """A rank has come out of its batch to the cycle under way, or will not come at all."""
        if self._pending is not None:
            self._pending.entered_at = now

    @property
    def boundary_wait_ms(self) -> Milliseconds:
        """How long after the trigger the last rank still finished a batch."""
        return self._pending.boundary_wait_ms if self._pending else 0.0

    def note_boundary(self, now: Seconds) -> None:
        """A rank finished a batch that belongs to the cycle under way."""
        if self._pending is not None:
            self._pending.boundary_wait_ms = (now - self._pending.since) * 1000.0

    @property
    def params_ended(self) -> bool:
        """Whether the fate of every sample in the cycle under way is known."""
        return self._phase in (CyclePhase.BUFFERING, CyclePhase.ADOPTING)

    def trigger(self, now: Seconds) -> Cycle:
        """Begin the next cycle and return its number.

        Raises:
            LocalProtocolError: one is under way.
        """
        if not self._move(CycleStep.TRIGGERED):
            raise LocalProtocolError(f"a cycle was triggered in phase {self._phase}")
        cycle = Cycle(self._next)
        self._next = max(self._next, self._after) + 1
        self._pending = _Pending(cycle=cycle, since=now, entered_at=now)
        self.rounds_ended_at = None
        self._acknowledged_below = Rank(0)
        return cycle

    def end_round(self, event: RoundEnded) -> bool:
        """Take the end of a round; False if it is none that the cycle under way waits for."""
        pending = self._pending
        if pending is None or event.cycle != pending.cycle:
            return False
        if not self._move(self._step_of(event)):
            return False
        if event.round is Round.CONTROL:
            pending.tallies = event.tallies
        elif event.round is Round.PARAMS:
            pending.realized = event.outcome is RoundOutcome.COMMITTED
            pending.tallies = event.tallies or pending.tallies
        return True

    def _step_of(self, event: RoundEnded) -> CycleStep:
        if event.round is Round.CONTROL:
            committed = event.outcome is RoundOutcome.COMMITTED
            return CycleStep.CONTROL_REALIZED if committed else CycleStep.CONTROL_UNREALIZED
        if event.round is Round.PARAMS:
            return CycleStep.PARAMS_ENDED if self._has_buffers else CycleStep.PARAMS_ENDED_LAST
        return CycleStep.BUFFERS_ENDED

    @property
    def tallies(self) -> tuple[RankTally, ...]:
        """What the control round of the cycle under way said of each rank."""
        return self._pending.tallies if self._pending else ()

    @property
    def realized(self) -> bool:
        """Whether the cycle under way has committed parameters."""
        return self._pending is not None and self._pending.realized

    def take_ready(self, ready: SnapshotReady) -> bool:
        """Take a rank's SnapshotReady; False if it is of another cycle or a second one."""
        pending = self._pending
        if pending is None or ready.cycle != pending.cycle:
            return False
        known = pending.evidence.get(ready.rank, Evidence())
        if known.ready is not None:
            return False
        pending.evidence[ready.rank] = Evidence(ready=ready, ack=known.ack)
        return True

    def take_ack(self, ack: SyncAck) -> bool:
        """Take a rank's SyncAck; False if it is of another cycle or a second one."""
        pending = self._pending
        if pending is None or ack.cycle != pending.cycle:
            return False
        known = pending.evidence.get(ack.rank, Evidence())
        if known.ack is not None:
            return False
        pending.evidence[ack.rank] = Evidence(ready=known.ready, ack=ack)
        return True

    def evidence(self, rank: Rank) -> Evidence:
        """What that rank has said of the cycle under way."""
        return self._pending.evidence.get(rank, Evidence()) if self._pending else Evidence()

    def missing(self, alive: Iterable[Rank]) -> tuple[Rank, ...]:
        """The alive ranks that have not acknowledged the cycle under way."""
        return tuple(rank for rank in alive if self.evidence(rank).ack is None)

    def is_acknowledged(self, alive: Sequence[Rank]) -> bool:
        """Whether every alive rank has acknowledged the cycle under way.

        An acknowledgement stands, so the search goes on where it ended before: a cycle
        asks each of its ranks once or twice, not once an acknowledgement.

        Args:
            alive: the ranks that take part, ascending.
        """
        for index in range(bisect_left(alive, self._acknowledged_below), len(alive)):
            if self.evidence(alive[index]).ack is None:
                self._acknowledged_below = alive[index]
                return False
        return self.pending

    def finish(self, now: Seconds) -> None:
        """The cycle is over.

        Raises:
            LocalProtocolError: none is, or its rounds have not ended.
        """
        pending = self._pending
        if pending is None or not self._move(CycleStep.FINISHED):
            raise LocalProtocolError(f"a cycle was finished in phase {self._phase}")
        self.last_sync_ms = (now - pending.since) * 1000.0
        self.last_outcome = "committed" if pending.realized else "unrealized"
        before, self._finished_at = self._finished_at, now
        window_ms = None if before is None else (now - before) * 1000.0
        self._end(pending, self.last_sync_ms, window_ms)

    def abandon(self) -> None:
        """Forget the cycle under way, if there is one: the run ends without it."""
        pending = self._pending
        if pending is not None and self._move(CycleStep.ABANDONED):
            self.last_outcome = "failed"
            self._finished_at = None
            self._end(pending, None, None)

    def take_ended(self) -> list[EndedCycle]:
        """Return the cycles that ended since the last call, oldest first."""
        ended, self._ended = self._ended, []
        return ended

    def _end(
        self, pending: _Pending, sync_ms: Milliseconds | None, window_ms: Milliseconds | None
    ) -> None:
        assert self.last_outcome is not None
        self._ended.append(EndedCycle(pending.cycle, self.last_outcome, sync_ms, window_ms))
        self._pending = None

    def _move(self, step: CycleStep) -> bool:
        target = TRANSITIONS.get((self._phase, step))
        if target is None:
            return False
        self._phase = target
        return True
