"""Who is in the world: the machine of the join window and of what follows.

What it is: memory plus the rules of this package. Events in, effects out.
What it is not: a socket, a clock or a process; the coordinator of training.
Who drives it: the launcher, with one `handle` for every event and a `Tick` when
`deadline` has come.

    waiting ⇄ staging ──▶ forming ──▶ training ──▶ done
        └────────┴───────────┴───────────┴──────▶ failed

Before forming, a member whose connection ends is taken out and the others are
numbered anew. From forming on the world is final: a member that is lost stays in
the roster, and its ranks are declared lost.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from flodl_core.config.window import WindowConfig
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import ClusterPhase, HostName, StartMode
from flodl_core.machines import Note, Tick
from flodl_core.membership.admission import Refused, refuse_late, review_admission
from flodl_core.membership.events import (
    Aborted,
    AbortMember,
    AdmitMember,
    AnnouncePhase,
    DeclareHostLost,
    FailWindow,
    FormationFinished,
    FormWorld,
    HelloReceived,
    LedgerEffect,
    LedgerEvent,
    MemberLeft,
    RefuseMember,
    StartRequested,
    TrainingEnded,
    WindowOpened,
)
from flodl_core.membership.failure import describe_abort, describe_failure
from flodl_core.membership.invariants import broken_invariants
from flodl_core.membership.job_facts import without_entries
from flodl_core.membership.roster import (
    Expected,
    Member,
    SeatedMember,
    count_ranks,
    seat,
    seed_expected,
)
from flodl_core.membership.snapshot import MembershipSnapshot, member_rows, review_start
from flodl_core.membership.window import Verdict, WindowState, review_window
from flodl_core.membership.window_clock import WindowClock
from flodl_core.units import Seconds

STORY_LINES: Final = 50
MAX_UNSEATED: Final = 64
"""Hosts that came and are not in, remembered for the text of a failure."""

Action: TypeAlias = str
"""The name of the method that handles an event; `note` changes nothing."""

_P: Final = ClusterPhase
_BEFORE_FORMING: Final[dict[type, Action]] = {
    WindowOpened: "_open",
    HelloReceived: "_admit",
    MemberLeft: "_take_out",
    StartRequested: "_arm",
    FormationFinished: "_note",
    TrainingEnded: "_note",
    Aborted: "_abort_window",
    Tick: "_review",
}
_FINAL: Final[dict[type, Action]] = {
    WindowOpened: "_note",
    HelloReceived: "_refuse_late",
    MemberLeft: "_lose",
    StartRequested: "_note",
    FormationFinished: "_note",
    TrainingEnded: "_finish",
    Aborted: "_abort_world",
    Tick: "_rest",
}
_ENDED: Final[dict[type, Action]] = {
    WindowOpened: "_note",
    HelloReceived: "_refuse_late",
    MemberLeft: "_close",
    StartRequested: "_note",
    FormationFinished: "_note",
    TrainingEnded: "_note",
    Aborted: "_note",
    Tick: "_rest",
}
TRANSITIONS: Final[Mapping[ClusterPhase, Mapping[type, Action]]] = {
    _P.WAITING: _BEFORE_FORMING,
    _P.STAGING: _BEFORE_FORMING,
    _P.FORMING: _FINAL | {FormationFinished: "_begin_training"},
    _P.TRAINING: _FINAL,
    _P.DONE: _ENDED,
    _P.FAILED: _ENDED,
}
"""What each event does in each phase; a test drives every pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryLine:
    """One event that was handled, for a reader after the fact."""

    at_s: Seconds
    event: str
    phase: ClusterPhase
    effects: tuple[str, ...]


class MembershipLedger:
    """The members of a run from the first hello to its end.

    Args:
        config: the window's numbers.
        expected: what every host must agree with.
        configured_hosts: labels of the hosts that the command starts itself.
    """

    def __init__(
        self,
        config: WindowConfig,
        expected: Expected,
        *,
        configured_hosts: Sequence[HostName] = (),
    ) -> None:
        self._config = config
        self._expected = expected
        self._configured_hosts = tuple(configured_hosts)
        self._phase = ClusterPhase.WAITING
        self._reason = "the window is not open yet"
        self._clock = WindowClock(window_s=config.join_timeout_s, cap_s=config.max_join_timeout_s)
        self._members: tuple[Member, ...] = ()
        self._start_armed = False
        self._unseated: dict[HostName, str] = {}
        self._due: Seconds | None = None
        self._story: deque[StoryLine] = deque(maxlen=STORY_LINES)

    @property
    def phase(self) -> ClusterPhase:
        """Where the run stands, as far as membership knows."""
        return self._phase

    @property
    def members(self) -> tuple[Member, ...]:
        """Who is in, in admission order."""
        return self._members

    @property
    def story(self) -> tuple[StoryLine, ...]:
        """The last fifty events and what they did."""
        return tuple(self._story)

    def handle(self, event: LedgerEvent, now: Seconds) -> list[LedgerEffect]:
        """Take an event in and return what is to be done about it, in order."""
        action: Action = TRANSITIONS[self._phase].get(type(event), "_note")
        effects: list[LedgerEffect] = getattr(self, action)(event, now)
        self._due = self._clock.next_due(now) if self._is_open else None
        if not (isinstance(event, Tick) and not effects):
            self._story.append(
                StoryLine(
                    at_s=now,
                    event=type(event).__name__,
                    phase=self._phase,
                    effects=tuple(type(effect).__name__ for effect in effects),
                )
            )
        return effects

    def deadline(self) -> Seconds | None:
        """Return when a `Tick` is due next: the end of the window, then the hard cap."""
        return self._due

    def snapshot(self, now: Seconds) -> MembershipSnapshot:
        """Return the state for screens and for the status document."""
        live = [member for member in self._members if member.connected]
        return MembershipSnapshot(
            phase=self._phase,
            reason=self._reason,
            joined_ranks=count_ranks(live),
            joined_hosts=len(live),
            min_rank_start=self._config.min_rank_start,
            target_ranks=self._config.target_ranks,
            window_remaining_s=self._clock.window_left_s(now) if self._is_open else None,
            cap_remaining_s=self._clock.cap_left_s(now) if self._is_open else None,
            start_mode=self._config.start_mode,
            start_armed=self._start_armed,
            members=member_rows(self._members),
        )

    def check(self) -> None:
        """Compare the state with what must always hold.

        Raises:
            LocalProtocolError: it does not; the text ends with the story.
        """
        broken = broken_invariants(
            self._phase,
            self._members,
            self._config,
            due=self._due,
            start_armed=self._start_armed,
        )
        if broken:
            raise LocalProtocolError(
                f"membership broke its own rules: {'; '.join(broken)}",
                fix=f"report this story: {self.story}",
            )

    @property
    def _is_open(self) -> bool:
        return self._phase in (ClusterPhase.WAITING, ClusterPhase.STAGING)

    def _joined(self) -> int:
        return count_ranks(member for member in self._members if member.connected)

    def _enter(self, phase: ClusterPhase, reason: str) -> list[LedgerEffect]:
        """Change the phase and announce it if it is another one."""
        changed = phase is not self._phase
        self._phase, self._reason = phase, reason
        return [AnnouncePhase(phase=phase, reason=reason)] if changed else []

    def _note(self, event: LedgerEvent, _: Seconds) -> list[LedgerEffect]:
        fields = {"event": type(event).__name__, "phase": str(self._phase)}
        return [Note(code="membership_out_of_phase", fields=fields)]

    def _rest(self, _event: Tick, _now: Seconds) -> list[LedgerEffect]:
        return []

    def _open(self, event: WindowOpened, now: Seconds) -> list[LedgerEffect]:
        if self._clock.opened_at is not None:
            return self._note(event, now)
        self._clock = replace(self._clock, opened_at=now)
        self._reason = "join window open"
        announced = AnnouncePhase(phase=self._phase, reason=self._reason)
        return [announced, *self._review(event, now)]

    def _admit(self, event: HelloReceived, now: Seconds) -> list[LedgerEffect]:
        if self._clock.opened_at is None:
            return self._refuse_late(event, now)
        if any(member.connection == event.connection for member in self._members):
            return [Note(code="membership_second_hello", fields={"connection": event.connection})]
        expected = seed_expected(self._expected, self._members)
        admission = review_admission(event.hello, self._members, expected)
        effects: list[LedgerEffect]
        if isinstance(admission, Refused):
            effects = self._refuse(event, admission)
        else:
            hello = (
                event.hello if self._expected.model_sig is None else without_entries(event.hello)
            )
            member = Member(
                connection=event.connection,
                address=event.address,
                hello=hello,
                joined_at_s=self._clock.waited_s(now),
            )
            self._members = (*self._members, member)
            self._unseated.pop(member.host, None)
            effects = [
                AdmitMember(
                    connection=event.connection,
                    ranks=seat(self._members)[-1].ranks,
                    formation_wait_s=self._clock.cap_left_s(now) or 0.0,
                )
            ]
        return effects + self._review(event, now)

    def _refuse(self, event: HelloReceived, refusal: Refused) -> list[LedgerEffect]:
        self._remember_unseated(event.hello.host, f"refused: {refusal.reason}")
        return [RefuseMember(connection=event.connection, refusal=refusal)]

    def _refuse_late(self, event: HelloReceived, _: Seconds) -> list[LedgerEffect]:
        state = "not open yet" if self._is_open else f"closed: {self._phase}"
        return self._refuse(event, refuse_late(state))

    def _remember_unseated(self, host: HostName, why: str) -> None:
        if host in self._unseated or len(self._unseated) < MAX_UNSEATED:
            self._unseated[host] = why

    def _take_out(self, event: MemberLeft, now: Seconds) -> list[LedgerEffect]:
        left = [member for member in self._members if member.connection == event.connection]
        if not left:
            return self._forget(event, now)
        self._members = tuple(member for member in self._members if member not in left)
        self._remember_unseated(left[0].host, "left again")
        return self._review(event, now)

    def _lose(self, event: MemberLeft, now: Seconds) -> list[LedgerEffect]:
        lost = self._disconnect(event)
        if lost is None:
            return self._forget(event, now)
        return [DeclareHostLost(host=lost.member.host, ranks=lost.ranks)]

    def _close(self, event: MemberLeft, now: Seconds) -> list[LedgerEffect]:
        return self._forget(event, now) if self._disconnect(event) is None else []

    def _disconnect(self, event: MemberLeft) -> SeatedMember | None:
        """Mark a member as gone and return it; None if no connected one has the connection."""
        for seated in seat(self._members):
            member = seated.member
            if member.connection == event.connection and member.connected:
                gone = replace(member, connected=False)
                self._members = tuple(gone if m is member else m for m in self._members)
                return seated
        return None

    def _forget(self, event: MemberLeft, _: Seconds) -> list[LedgerEffect]:
        return [
            Note(
                code="membership_unknown_connection",
                fields={"connection": event.connection, "phase": str(self._phase)},
            )
        ]

    def _arm(self, event: StartRequested, now: Seconds) -> list[LedgerEffect]:
        answer = review_start(self._config.start_mode, self.snapshot(now), trusted=True)
        if not answer.armed:
            fields = {"who": event.who, "reason": answer.reason}
            return [Note(code="membership_start_refused", fields=fields)]
        self._start_armed = True
        return self._review(event, now)

    def _review(self, _: LedgerEvent, now: Seconds) -> list[LedgerEffect]:
        """Apply the verdict of the window to what is known now."""
        if self._clock.opened_at is None:
            return []
        joined, waited_s = self._joined(), self._clock.waited_s(now)
        verdict = review_window(joined, waited_s, self._config, start_requested=self._start_armed)
        if verdict.state is WindowState.FORMED:
            effects = self._enter(ClusterPhase.FORMING, verdict.reason)
            return [*effects, FormWorld(roster=seat(self._members), reason=verdict.reason)]
        if verdict.state is WindowState.FAILED:
            failure = describe_failure(
                verdict.reason,
                waited_s,
                self._members,
                config=self._config,
                configured_hosts=self._configured_hosts,
                unseated=self._unseated,
            )
            return self._fail(failure)
        quorum = joined >= self._config.min_rank_start
        holds = self._config.start_mode is not StartMode.AUTO and quorum
        phase = ClusterPhase.STAGING if holds else ClusterPhase.WAITING
        return self._enter(phase, self._open_reason(verdict, joined))

    def _open_reason(self, verdict: Verdict, joined: int) -> str:
        quorum = self._config.min_rank_start
        return verdict.reason if joined >= quorum else f"{verdict.reason}, {joined}/{quorum} ranks"

    def _fail(self, failure: FailWindow) -> list[LedgerEffect]:
        return [
            *self._enter(ClusterPhase.FAILED, failure.reason),
            failure,
            *self._abort_members(failure.reason),
        ]

    def _abort_members(self, reason: str) -> list[LedgerEffect]:
        return [
            AbortMember(connection=member.connection, reason=reason)
            for member in self._members
            if member.connected
        ]

    def _abort_window(self, event: Aborted, now: Seconds) -> list[LedgerEffect]:
        return self._fail(describe_abort(event.reason, self._clock.waited_s(now), self._members))

    def _abort_world(self, event: Aborted, _: Seconds) -> list[LedgerEffect]:
        effects = self._enter(ClusterPhase.FAILED, event.reason)
        return [*effects, *self._abort_members(event.reason)]

    def _begin_training(self, _event: FormationFinished, _now: Seconds) -> list[LedgerEffect]:
        return self._enter(ClusterPhase.TRAINING, "every host is linked; its ranks are starting")

    def _finish(self, _event: TrainingEnded, _now: Seconds) -> list[LedgerEffect]:
        return self._enter(ClusterPhase.DONE, "the run ended")
