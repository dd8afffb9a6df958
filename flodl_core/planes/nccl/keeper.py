"""A rank's communicator, from session to session: formed, broken, formed anew.

What it is: one thread that forms and aborts communicators, so that neither training nor
the bridge waits for one; and the one decision that must not race: whether a cycle was
completed before its session broke. `heed` breaks a session at once; `risk` and `complete`
ask under the same lock.
What it is not: a schedule; the coordinator says who re-forms, and when.
Who drives it: the bridge hands it messages as they arrive, the training thread uses what
is formed.

```
      form ──▶ forming ──READY──▶ usable ──DeclareDead, RequestNewNcclId──▶ broken
                  ▲                                                            │
                  └──────────────────── NewNcclSession ◀───────────────────────┘
```
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from flodl_core.ids import Cycle, Rank, SaveReason, Session
from flodl_core.messages.control import (
    DeclareDead,
    NewNcclSession,
    RequestNewNcclId,
    ShutdownWithSave,
)
from flodl_core.messages.timing import Exiting, NcclSessionFormed, NewNcclIdGenerated
from flodl_core.planes.nccl.collective import (
    Collective,
    CollectiveError,
    CommState,
    Fabric,
    LoneCollective,
)
from flodl_core.planes.nccl.waiting import POLL_S

FIRST_SESSION = Session(0)
_NONE = -1


class SessionBrokenError(Exception):
    """The session ended under a cycle: a member died, or its communicator failed."""


@dataclass(slots=True)
class FormedSession:
    """A communicator that is usable until its session breaks."""

    session: Session
    comm: Collective
    place: int
    size: int
    source: int | None = None
    """Place of the member whose consensus is broadcast first; None if nothing is to be."""
    is_broken: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def using(self) -> Iterator[Collective]:
        """Use the communicator for a call that does not block; it is not aborted meanwhile.

        Raises:
            SessionBrokenError: the session is over.
        """
        with self.lock:
            if self.is_broken:
                raise SessionBrokenError(f"session {self.session} is over")
            try:
                yield self.comm
            except CollectiveError as error:
                if self.is_broken:
                    raise SessionBrokenError(f"session {self.session} is over") from error
                raise


@dataclass(frozen=True, slots=True)
class _Form:
    session: Session
    uid: bytes
    place: int
    size: int
    source: int | None


class SessionKeeper:
    """The sessions of one rank.

    Args:
        rank: of this process.
        fabric: of its device.
        post: sends a message to the coordinator; from any thread.
        note: takes what happened, an event's name and one text.
    """

    def __init__(
        self,
        rank: Rank,
        fabric: Fabric,
        *,
        post: Callable[[object], None],
        note: Callable[[str, str], None],
    ) -> None:
        self._rank, self._fabric = rank, fabric
        self._post, self._note = post, note
        self._lock = threading.Lock()
        self._newest: int = _NONE
        self._formed: FormedSession | None = None
        self._forming: FormedSession | None = None
        self._completed = Cycle(_NONE)
        self._is_damaged = False
        self._why_not_able = ""
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="sessions", daemon=True)
        self._thread.start()

    # the bridge

    def heed(self, message: object) -> None:
        """Take a message of the coordinator as it arrives, None at the end; never blocks."""
        match message:
            case DeclareDead():
                self._break(f"rank {message.rank} is dead")
            case RequestNewNcclId():
                self._answer(message)
            case NewNcclSession():
                source = message.consensus_from
                place, size = message.new_rank, message.new_world_size
                form = _Form(message.session, message.uid, place, size, source)
                self._work.put(lambda: self._form(form))
            case None | ShutdownWithSave(reason=SaveReason.CONTROLLER_LOST):
                self._end("the launcher or the relay is gone")

    def form_first(self, uid: bytes, *, size: int) -> None:
        """Begin session 0, in which a member's place is its rank."""
        form = _Form(FIRST_SESSION, uid, self._rank, size, None)
        self._work.put(lambda: self._form(form))

    def new_uid(self) -> bytes:
        """Return the uid of session 0, of the rank that was asked to make it."""
        self._fabric.bind()
        return self._fabric.new_uid()

    def _end(self, why: str) -> None:
        """Break what there is; no session will follow."""
        self._is_over = True
        self._break(why)

    def _break(self, why: str) -> None:
        with self._lock:
            broken = [one for one in (self._formed, self._forming) if one and not one.is_broken]
            self._formed = None
            for one in broken:
                one.is_broken = True
                one.comm.give_up()
        for one in broken:
            self._note("session_broken", f"session {one.session}: {why}")
            self._work.put(lambda one=one: self._abort(one))  # type: ignore[misc]

    def _answer(self, request: RequestNewNcclId) -> None:
        with self._lock:
            self._newest = max(self._newest, request.session)
        self._break(f"session {request.session} is to be formed")
        with self._lock:
            completed, is_damaged = self._completed, self._is_damaged
        self._work.put(lambda: self._generate(request, completed, is_damaged=is_damaged))

    # the training thread

    @property
    def usable(self) -> FormedSession | None:
        """The session that may be used now.

        Raises:
            CollectiveError: this rank could not join one, and ends.
        """
        if self._why_not_able:
            raise CollectiveError(self._why_not_able)
        return self._formed

    @property
    def newest(self) -> int:
        """The newest session that the coordinator has named; -1 before the first."""
        return self._newest

    @property
    def completed(self) -> Cycle:
        """The newest cycle that this rank completed; -1 before the first."""
        return self._completed

    @property
    def is_over(self) -> bool:
        """Whether no session will follow."""
        return self._is_over

    def complete(self, formed: FormedSession, cycle: Cycle) -> None:
        """Enter that the last collective of a cycle has ended well.

        Raises:
            SessionBrokenError: the session broke before; the cycle counts as not completed.
        """
        with self._lock:
            if formed.is_broken:
                raise SessionBrokenError(f"session {formed.session} is over")
            self._completed = cycle
            self._is_damaged = False

    def risk(self, formed: FormedSession, *, is_damaged: bool) -> None:
        """Say, before any value is touched, whether a break leaves what is neither old nor new.

        Raises:
            SessionBrokenError: the session broke before: nothing may be touched.
        """
        with self._lock:
            if formed.is_broken:
                raise SessionBrokenError(f"session {formed.session} is over")
            self._is_damaged = is_damaged

    def fail(self, formed: FormedSession, why: str) -> None:
        """Give up a session whose communicator failed; the coordinator hears of a death soon."""
        if not formed.is_broken:
            self._break(why)

    def close(self) -> None:
        """End the thread; what is formed is given back."""
        self._end("the rank leaves")
        self._work.put(None)
        self._thread.join(5.0)

    # the keeper's own thread

    def _run(self) -> None:
        self._fabric.bind()
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception as error:  # whatever a library raises, the thread goes on
                self._note("session_failed", f"{type(error).__name__}: {error}")

    def _abort(self, formed: FormedSession) -> None:
        with formed.lock:
            formed.comm.abort()

    def _generate(self, request: RequestNewNcclId, completed: Cycle, *, is_damaged: bool) -> None:
        uid = self._fabric.new_uid() if request.makes_uid else b""
        self._post(
            NewNcclIdGenerated(
                rank=self._rank,
                session=request.session,
                uid=uid,
                completed_cycle=completed,
                is_damaged=is_damaged,
            )
        )

    def _form(self, form: _Form) -> None:
        with self._lock:
            is_late = form.session < self._newest or self._is_over
            self._newest = max(self._newest, form.session)
        if is_late:
            return
        comm: Collective = LoneCollective()
        if form.size > 1:
            try:
                comm = self._fabric.join(form.uid, place=form.place, size=form.size)
            except Exception as error:  # whatever the binding raises
                self._end_for(form.session, f"{type(error).__name__}: {error}".splitlines()[0])
                return
        formed = FormedSession(form.session, comm, form.place, form.size, form.source)
        with self._lock:
            self._forming = formed
            if self._newest > form.session:
                formed.is_broken = True
        while (state := self._state_of(formed)) is CommState.IN_PROGRESS:
            time.sleep(POLL_S)
        with self._lock:
            self._forming = None
            is_usable = state is CommState.READY and not formed.is_broken
            if is_usable:
                self._formed = formed
        if not is_usable:
            self._abort(formed)
            self._note("session_not_formed", f"session {form.session} of {form.size} ranks")
            return
        self._note("session_formed", f"session {form.session}: place {form.place} of {form.size}")
        self._post(NcclSessionFormed(rank=self._rank, session=form.session))

    def _end_for(self, session: Session, why: str) -> None:
        """Say that this rank ends; training may be in a long batch, and all others wait for it."""
        self._why_not_able = f"it cannot join NCCL session {session}: {why}"
        self._note("session_failed", self._why_not_able)
        self._post(Exiting(rank=self._rank, error=self._why_not_able))

    def _state_of(self, formed: FormedSession) -> CommState:
        with formed.lock:
            return CommState.FAILED if formed.is_broken else formed.comm.state()
