"""Sessions of the NCCL plane: who is in the communicator, and how it is formed anew.

What it is: a machine with one session at a time. The first one's uid comes from the
bootstrap. After a death every survivor is asked what it had completed, one of them makes a
uid, and all are told the new session; it is usable once every member said so.
What it is not: the deaths, and not the cycle: `nccl_cycle` decides what a break means.
Who drives it: `coordinator.nccl_cycle`.

    FORMING ──all said Formed──▶ READY ──a death──▶ ASKING ──all answered──▶ FORMING
       └────────────────── a death ──────────────────▲
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from flodl_core.coordinator.ceiling import Ceiling, earliest
from flodl_core.coordinator.effects import Effect, Send
from flodl_core.coordinator.rendezvous import UID_BYTES
from flodl_core.ids import Cycle, Rank, Session
from flodl_core.machines import Note
from flodl_core.messages.control import NewNcclSession, RequestNewNcclId
from flodl_core.messages.timing import NcclSessionFormed, NewNcclIdGenerated
from flodl_core.units import Seconds

CANDIDATE_S: Seconds = 5.0
"""How long one rank may take to make a uid before another one is asked."""

REFORM_S: Seconds = 60.0
"""From a death or an eviction to a usable session; then somebody who is missing is evicted."""

_FIRST = Session(0)


class SessionPhase(StrEnum):
    """How far the session is."""

    ASKING = "asking"
    FORMING = "forming"
    READY = "ready"


@dataclass(slots=True)
class NcclSessions:
    """The sessions of one run.

    Args:
        members: ranks of the first one, ascending; a member's place is its index.
        local_ranks: of the launcher's own host, which make uids before others.
        first_s: how long the first session may take to form.

    Attributes:
        session: the newest one.
        waits_since: since when this session is being formed; None while it is usable.
        published: the root's newest cycle in which a consensus was brought for a save.
        brought: the version whose values a rank brought to the launcher last, and that cycle
            of the root; None while it has those of the initial broadcast.
        taking_part: whose contributions are in the cycle under way, once it is realized.
    """

    members: tuple[Rank, ...]
    local_ranks: tuple[Rank, ...]
    first_s: Seconds
    session: Session = _FIRST
    phase: SessionPhase = SessionPhase.FORMING
    waits_since: Seconds | None = None
    taking_part: tuple[Rank, ...] = ()
    published: int = 0
    brought: tuple[int, Cycle] | None = None
    candidate: Rank | None = None
    _asked: tuple[Rank, ...] = ()
    _candidate_since: Seconds = 0.0
    _tried: set[Rank] = field(default_factory=set)
    _answers: dict[Rank, NewNcclIdGenerated] = field(default_factory=dict)
    _formed: set[Rank] = field(default_factory=set)

    @property
    def is_ready(self) -> bool:
        """Whether a cycle may begin."""
        return self.phase is SessionPhase.READY

    @property
    def counted_on(self) -> tuple[Rank, ...]:
        """The ranks without which this session is of no use, ascending."""
        return self._asked if self.phase is SessionPhase.ASKING else self.members

    @property
    def hold_reason(self) -> str:
        """Why no cycle may begin; empty if one may."""
        if self.is_ready:
            return ""
        return f"NCCL session {self.session} is {self.phase.value}"

    @property
    def is_damaged(self) -> bool:
        """Whether a survivor's values are neither old nor new, and none completed."""
        return any(answer.is_damaged for answer in self._answers.values())

    @property
    def ceiling(self) -> Ceiling | None:
        """The wait for a usable session."""
        if self.waits_since is None:
            return None
        limit = self.first_s if self.session == _FIRST else REFORM_S
        return Ceiling(self.waits_since, limit)

    @property
    def candidate_ceiling(self) -> Ceiling | None:
        """The wait for the candidate's uid."""
        if self.phase is not SessionPhase.ASKING or self.candidate is None:
            return None
        return Ceiling(self._candidate_since, CANDIDATE_S)

    def due(self) -> Seconds | None:
        """When a ceiling of this machine passes; None if it waits for nothing."""
        ceilings = (self.ceiling, self.candidate_ceiling)
        return earliest(*(one.due() if one else None for one in ceilings))

    def missing(self, alive: Iterable[Rank]) -> tuple[Rank, ...]:
        """The alive ranks that the session waits for."""
        done = self._answers.keys() if self.phase is SessionPhase.ASKING else self._formed
        return () if self.is_ready else tuple(rank for rank in alive if rank not in done)

    def to_evict(self, alive: Iterable[Rank]) -> tuple[Rank, ...]:
        """Return who goes for a session that is overdue.

        An answer is each rank's own affair: all who owe one go. To form is the work of all,
        so that one who does not come keeps everybody from it: then one goes at a time, the
        lowest that the others have done without, or the highest if nobody has done anything.
        """
        ranks = tuple(alive)
        missing = self.missing(ranks)
        if missing == ranks:
            return missing[-1:]
        return missing if self.phase is SessionPhase.ASKING else missing[:1]

    def open(self, now: Seconds) -> None:
        """The bootstrap is over: every rank has the uid of session 0."""
        if self.waits_since is None and self.session == _FIRST and not self.is_ready:
            self.waits_since = now

    def begin_anew(self, alive: Sequence[Rank], now: Seconds) -> list[Effect]:
        """Ask the survivors for what they completed, and one of them for a uid.

        Args:
            alive: the survivors, ascending; at least one.
            now: monotonic seconds.
        """
        self.session = Session(self.session + 1)
        self.phase = SessionPhase.ASKING
        self.waits_since = now
        self._asked = tuple(alive)
        self._answers.clear()
        self._formed.clear()
        self._tried.clear()
        self.candidate = self._next_candidate(alive)
        self._candidate_since = now
        return [
            Send(rank, RequestNewNcclId(session=self.session, makes_uid=rank == self.candidate))
            for rank in alive
        ]

    def _next_candidate(self, alive: Sequence[Rank]) -> Rank | None:
        """The lowest untried rank of the launcher's host, else the lowest untried one."""
        untried = [rank for rank in alive if rank not in self._tried]
        local = [rank for rank in untried if rank in self.local_ranks]
        chosen = min(local or untried, default=None)
        if chosen is not None:
            self._tried.add(chosen)
        return chosen

    def review_candidate(self, alive: Sequence[Rank], now: Seconds) -> list[Effect]:
        """Ask another rank for a uid if the candidate is gone or took too long."""
        ceiling = self.candidate_ceiling
        if ceiling is None or not ceiling.passed(now):
            return []
        slow = self.candidate
        self.candidate = self._next_candidate(alive)
        self._candidate_since = now
        note = Note(code="nccl_candidate_passed_over", fields={"rank": slow})
        if self.candidate is None:
            return [note]
        request = RequestNewNcclId(session=self.session, makes_uid=True)
        return [note, Send(self.candidate, request)]

    def take_answer(self, answer: NewNcclIdGenerated) -> list[Effect]:
        """Take what a survivor had completed, and maybe a uid."""
        asking = self.phase is SessionPhase.ASKING and answer.session == self.session
        if not asking or (answer.uid and len(answer.uid) != UID_BYTES):
            return [Note(code="nccl_answer_out_of_place", fields={"rank": answer.rank})]
        known = self._answers.get(answer.rank)
        if known is None or not known.uid:
            self._answers[answer.rank] = answer
        return []

    def take_formed(self, message: NcclSessionFormed, alive: Sequence[Rank]) -> list[Effect]:
        """A member's communicator is usable; the session is once all of them are."""
        if self.phase is not SessionPhase.FORMING or message.session != self.session:
            return [Note(code="nccl_formed_out_of_place", fields={"rank": message.rank})]
        self._formed.add(message.rank)
        if set(alive) <= self._formed:
            self.phase = SessionPhase.READY
            self.waits_since = None
        return []

    def completed(self, alive: Sequence[Rank], cycle: Cycle) -> tuple[Rank, ...]:
        """The survivors that say they completed that cycle."""
        return tuple(
            rank
            for rank in alive
            if rank in self._answers and self._answers[rank].completed_cycle >= cycle
        )

    def may_form(self, alive: Sequence[Rank]) -> bool:
        """Whether every survivor has answered and there is a uid."""
        if self.phase is not SessionPhase.ASKING or not alive:
            return False
        answers = self._answers
        has_uid = any(answers[rank].uid for rank in alive if rank in answers)
        return has_uid and all(rank in answers for rank in alive)

    def form(self, alive: Sequence[Rank], source: Rank | None) -> list[Effect]:
        """Tell the survivors the new session.

        Args:
            alive: its members, ascending.
            source: whose consensus they begin with; None if all have the same.
        """
        uid = next(self._answers[rank].uid for rank in alive if self._answers[rank].uid)
        self.members = tuple(alive)
        self.phase = SessionPhase.FORMING
        place = None if source is None else Rank(self.members.index(source))
        return [
            Send(
                rank,
                NewNcclSession(
                    session=self.session,
                    uid=uid,
                    new_rank=Rank(index),
                    new_world_size=len(self.members),
                    consensus_from=place,
                ),
            )
            for index, rank in enumerate(self.members)
        ]
