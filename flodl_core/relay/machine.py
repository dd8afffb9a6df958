"""One host's barrier and the order of its rounds.

It knows which local ranks live, whose slot is ready, and which round of the cycle is
under way. Not the fold: no value passes through it, and it owns no socket. The relay
process drives one; the launcher drives one for its own ranks.

    GATHERING ──every alive rank ready──▶ IN_ROUND(control) ─▶ IN_ROUND(params) ─▶ IN_ROUND(buffers)
        ▲                                        │ RoundEnd           │                   │
        └────────────── the cycle is over ◀──────┴────────────────────┴───────────────────┘

A rank that goes after its ready mark stays in every round of the cycle, since its slot
is mapped. A rank that goes before it is out of the barrier, and may complete it.
When the last rank is gone the relay ends: at once, or after the rounds of a cycle in
which one of its ranks still takes part, bounded by `drain_ceiling_s`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Cycle, Rank, Round, RoundOutcome
from flodl_core.machines import Note, NoteValue, Tick
from flodl_core.messages.data import RoundEnd
from flodl_core.units import Seconds

__all__ = [
    "DropRank",
    "Effect",
    "EndRelay",
    "Event",
    "FanOut",
    "Note",
    "RankGone",
    "RankReady",
    "RelayMachine",
    "RelayPhase",
    "RoundEndReceived",
    "ShipRound",
    "Tick",
    "UpstreamClosed",
]

DRAIN_CEILING_S: Seconds = 10.0


@dataclass(frozen=True, slots=True)
class RankReady:
    """A local rank's Ready arrived: its slot holds the snapshot of this cycle."""

    rank: Rank
    cycle: Cycle


@dataclass(frozen=True, slots=True)
class RankGone:
    """A local rank's channel ended, or the controller declared it dead."""

    rank: Rank


@dataclass(frozen=True, slots=True)
class RoundEndReceived:
    """The root ended a round; its values lie in this host's staging segment."""

    round_end: RoundEnd


@dataclass(frozen=True, slots=True)
class UpstreamClosed:
    """The connection to the root ended."""

    reason: str


Event = RankReady | RankGone | RoundEndReceived | UpstreamClosed | Tick


@dataclass(frozen=True, slots=True)
class ShipRound:
    """Fold the slots of these ranks for this round and send the subtotal up."""

    cycle: Cycle
    round: Round
    ranks: tuple[Rank, ...]
    """Ascending; those with a ready mark, also if they went since."""


@dataclass(frozen=True, slots=True)
class FanOut:
    """Send this RoundEnd to these local ranks."""

    round_end: RoundEnd
    ranks: tuple[Rank, ...]
    """Ascending; the alive ones with a ready mark in this cycle."""


@dataclass(frozen=True, slots=True)
class DropRank:
    """Close this rank's channels: it broke the protocol, and is out of the barrier."""

    rank: Rank
    reason: str


@dataclass(frozen=True, slots=True)
class EndRelay:
    """Nothing is left to do on this host. Returned once; every later event is a Note."""

    reason: str


Effect = ShipRound | FanOut | DropRank | EndRelay | Note


class RelayPhase(StrEnum):
    """What the machine is doing."""

    GATHERING = "gathering"
    IN_ROUND = "in_round"
    ENDED = "ended"


_FOLLOWING: dict[tuple[Round, RoundOutcome], Round | None] = {
    (Round.CONTROL, RoundOutcome.COMMITTED): Round.PARAMS,
    (Round.CONTROL, RoundOutcome.UNREALIZED): None,
    (Round.CONTROL, RoundOutcome.FAILED): None,
    (Round.PARAMS, RoundOutcome.COMMITTED): Round.BUFFERS,
    (Round.PARAMS, RoundOutcome.UNREALIZED): Round.BUFFERS,
    (Round.PARAMS, RoundOutcome.FAILED): None,
    (Round.BUFFERS, RoundOutcome.COMMITTED): None,
    (Round.BUFFERS, RoundOutcome.UNREALIZED): None,
    (Round.BUFFERS, RoundOutcome.FAILED): None,
}
"""The round after one that ended so; None ends the cycle."""


def following_round(ended: Round, outcome: RoundOutcome, *, has_buffers: bool) -> Round | None:
    """Return the next round of a cycle, or None when the cycle is over.

    The root, each relay and each rank follow this one rule.
    """
    following = _FOLLOWING[ended, outcome]
    return None if following is Round.BUFFERS and not has_buffers else following


def _note(code: str, **fields: NoteValue) -> list[Effect]:
    return [Note(code=code, fields=fields)]


class RelayMachine:
    """The barrier of one host.

    Args:
        ranks: the local ranks; at least one.
        has_buffers: whether the model has floating-point buffers, thus a buffers round.
        drain_ceiling_s: how long rounds may go on after the last rank is gone.

    Raises:
        LocalProtocolError: there are no ranks, or one is named twice.
    """

    def __init__(
        self,
        ranks: Iterable[Rank],
        *,
        has_buffers: bool,
        drain_ceiling_s: Seconds = DRAIN_CEILING_S,
    ) -> None:
        listed = tuple(ranks)
        self.ranks = frozenset(listed)
        if not listed or len(self.ranks) != len(listed):
            raise LocalProtocolError(f"a relay of ranks {listed}; expected one or more, once each")
        self._has_buffers = has_buffers
        self._drain_ceiling_s = drain_ceiling_s
        self._alive = set(self.ranks)
        self._ready: set[Rank] = set()
        self._cycle: Cycle | None = None
        self._round: Round | None = None
        self._last_cycle = -1
        self._drain_until: Seconds | None = None
        self._ended = False

    @property
    def phase(self) -> RelayPhase:
        """What the machine is doing."""
        if self._ended:
            return RelayPhase.ENDED
        return RelayPhase.GATHERING if self._round is None else RelayPhase.IN_ROUND

    @property
    def alive(self) -> tuple[Rank, ...]:
        """The local ranks that have not gone, ascending."""
        return tuple(sorted(self._alive))

    @property
    def cycle(self) -> Cycle | None:
        """The cycle that is gathered or served; None before its first ready mark."""
        return self._cycle

    @property
    def round(self) -> Round | None:
        """The round under way; None while gathering."""
        return self._round

    @property
    def waiting_for(self) -> tuple[Rank, ...]:
        """The alive ranks whose ready mark is missing, ascending; empty in a round."""
        return tuple(sorted(self._alive - self._ready)) if self._round is None else ()

    def deadline(self) -> Seconds | None:
        """Return when a Tick is due: the end of the drain, if one is on."""
        return self._drain_until

    def handle(self, event: Event, now: Seconds) -> list[Effect]:
        """Take one event and return what to do, in order.

        Args:
            event: what happened.
            now: monotonic seconds.
        """
        if self._ended:
            return _note("relay_has_ended", event=type(event).__name__)
        match event:
            case RankReady():
                return self._rank_ready(event, now)
            case RankGone():
                return self._rank_gone(event, now)
            case RoundEndReceived():
                return self._round_end(event.round_end)
            case UpstreamClosed():
                return self._end(event.reason)
            case Tick():
                return self._tick(now)
            case _:
                assert_never(event)

    def check(self) -> None:
        """Assert what must hold after every event.

        Raises:
            LocalProtocolError: it does not.
        """
        broken = [
            text
            for text, holds in (
                ("a rank of another host", self._alive | self._ready <= self.ranks),
                ("marks without a cycle", bool(self._ready) == (self._cycle is not None)),
                ("a round without marks", self._round is None or bool(self._ready)),
                ("a full barrier that waits", self._round is not None or not self._is_full()),
                ("a cycle that is over", self._cycle is None or self._cycle > self._last_cycle),
                ("no rank and no end", bool(self._alive) or self._drain_until is not None),
            )
            if not holds
        ]
        if broken and not self._ended:
            raise LocalProtocolError(f"relay of ranks {sorted(self.ranks)} has {broken}")

    def _rank_ready(self, event: RankReady, now: Seconds) -> list[Effect]:
        if event.rank not in self.ranks:
            return _note("ready_of_unknown_rank", rank=event.rank, cycle=event.cycle)
        if event.rank not in self._alive:
            return _note("ready_after_gone", rank=event.rank, cycle=event.cycle)
        reason = self._refuse_ready(event)
        if reason is not None:
            return [DropRank(event.rank, reason), *self._remove(event.rank, now)]
        self._cycle = event.cycle
        self._ready.add(event.rank)
        return self._ship_if_full()

    def _refuse_ready(self, event: RankReady) -> str | None:
        if event.cycle == self._cycle and event.rank in self._ready:
            return f"rank {event.rank} deposited twice in cycle {event.cycle}"
        if self._cycle is not None and event.cycle != self._cycle:
            return f"rank {event.rank} deposited for cycle {event.cycle} in cycle {self._cycle}"
        if event.cycle <= self._last_cycle:
            return f"rank {event.rank} deposited for cycle {event.cycle}, which is over"
        return None

    def _rank_gone(self, event: RankGone, now: Seconds) -> list[Effect]:
        if event.rank not in self.ranks:
            return _note("gone_of_unknown_rank", rank=event.rank)
        if event.rank not in self._alive:
            return _note("gone_twice", rank=event.rank)
        return self._remove(event.rank, now)

    def _remove(self, rank: Rank, now: Seconds) -> list[Effect]:
        self._alive.discard(rank)
        if not self._alive:
            if not self._ready:
                return self._end("every local rank is gone")
            self._drain_until = now + self._drain_ceiling_s
        return self._ship_if_full()

    def _is_full(self) -> bool:
        return bool(self._ready) and self._alive <= self._ready

    def _ship_if_full(self) -> list[Effect]:
        if self._round is not None or not self._is_full():
            return []
        self._round = Round.CONTROL
        return [self._ship()]

    def _ship(self) -> ShipRound:
        assert self._cycle is not None
        assert self._round is not None
        return ShipRound(self._cycle, self._round, tuple(sorted(self._ready)))

    def _round_end(self, round_end: RoundEnd) -> list[Effect]:
        if round_end.cycle != self._cycle or round_end.round != self._round:
            return _note(
                "round_end_out_of_turn",
                cycle=round_end.cycle,
                round=round_end.round,
                expected_cycle=self._cycle,
                expected_round=self._round,
            )
        effects: list[Effect] = [FanOut(round_end, tuple(sorted(self._alive & self._ready)))]
        self._round = following_round(
            round_end.round, round_end.outcome, has_buffers=self._has_buffers
        )
        if self._round is not None:
            return [*effects, self._ship()]
        self._last_cycle = round_end.cycle
        self._cycle = None
        self._ready.clear()
        if not self._alive:
            effects += self._end("every local rank is gone and its last cycle is over")
        return effects

    def _tick(self, now: Seconds) -> list[Effect]:
        if self._drain_until is None or now < self._drain_until:
            return []
        return self._end(
            f"every local rank is gone and the rounds of cycle {self._cycle} did not end "
            f"in {self._drain_ceiling_s:g} s"
        )

    def _end(self, reason: str) -> list[Effect]:
        self._ended = True
        self._drain_until = None
        return [EndRelay(reason)]
