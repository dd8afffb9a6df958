"""A user's own guard, as the launcher sees it: a process that is asked, and waited for in vain.

What it is: a guard among guards (`elche.guards.ConvergenceGuard`) whose opinions come from
`guard_process`. An answer usually takes well under a millisecond; the scheduler waits 20 ms
for it and no longer. A later one counts at the next average, together with the next one, and
meanwhile nothing further is asked. Past a ceiling, or if its process ends, the guard is given
up for good: whatever it did, it did it elsewhere.
What it is not: a check of what a guard says; that is `elche.judge`, here and there.
Who drives it: `launcher` starts and ends it, the coordinator's judge asks it.

    idle ─ review ─▶ asked ─ in time ─▶ idle      the verdict counts now
                       └─ late ─▶ thinking ─▶ idle    it counts at the next average
                                     └─ past the ceiling, or gone ─▶ given up
"""

import select
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import anyio

from flodl_core.elche.guards import (
    DivergenceReport,
    GuardTroubleError,
    NudgeDown,
    Stable,
    SuppressGrowth,
    Verdict,
)
from flodl_core.errors import BadFrameError, ConfigError
from flodl_core.ids import GuardKind
from flodl_core.net.children import Child, await_killed, python_command, spawn
from flodl_core.net.clock import now
from flodl_core.roles.guard_words import (
    PIECE_BYTES,
    Asked,
    GuardReady,
    GuardRefused,
    Lines,
    Opinion,
    Restore,
    Review,
    Told,
    line_of,
)
from flodl_core.units import Seconds

PATIENCE_S: Final[Seconds] = 0.02
"""How long the scheduler waits for an answer."""
CEILING_S: Final[Seconds] = 10.0
"""Past which a guard that has not answered is given up."""
_PROCESS: Final = "flodl_core.roles.guard_process"


class AskedGuard:
    """Stands for a guard that works in a process of its own.

    Args:
        child: the process.
        link: this end of the socket to it.
        ready: what it said first.
        ceiling_s: past which an answer is waited for no more.
        clock: instants in seconds.
    """

    def __init__(
        self,
        child: Child,
        link: socket.socket,
        ready: GuardReady,
        *,
        ceiling_s: Seconds = CEILING_S,
        clock: Callable[[], Seconds] = now,
    ) -> None:
        self._child = child
        self._link = link
        self._name = ready.name
        self._history = ready.history
        self._ceiling_s = ceiling_s
        self._clock = clock
        self._lines = Lines()
        self._asked_at: Seconds | None = None

    @property
    def name(self) -> str:
        """The guard's own name for itself."""
        return self._name

    @property
    def history(self) -> tuple[float, ...]:
        """What it wanted kept when it last answered."""
        return self._history

    def review(self, report: DivergenceReport) -> Verdict:
        """Ask for an opinion on a cycle; return what has been answered by now.

        Raises:
            GuardTroubleError: it raised, answered too late for good, or its process ended.
        """
        late = self._opinion(0.0)
        if self._asked_at is not None:
            age_s = self._clock() - self._asked_at
            if age_s > self._ceiling_s:
                raise GuardTroubleError(
                    f"it gave no answer in {age_s:.0f} s (ceiling {self._ceiling_s:g} s)",
                    is_final=True,
                )
            return late
        self._send(Review(report=report))
        self._asked_at = self._clock()
        return harder(late, self._opinion(PATIENCE_S))

    def restore(self, history: Iterable[float]) -> None:
        """Have it take up what a checkpoint kept."""
        self._history = tuple(history)
        self._send(Restore(history=self._history))

    async def close(self) -> None:
        """End the process, whatever it does, and wait for its end."""
        self._link.close()
        self._child.kill_group()
        await await_killed(self._child.wait)

    def _opinion(self, patience_s: Seconds) -> Verdict:
        """Return the opinion that was asked for, if it comes in time; Stable if not."""
        if self._asked_at is None:
            return Stable()
        word = self._hear(patience_s)
        if word is None:
            return Stable()
        self._asked_at = None
        if not isinstance(word, Opinion):
            raise GuardTroubleError("its process said what was not asked", is_final=True)
        self._history = word.history
        if word.trouble:
            raise GuardTroubleError(word.trouble)
        return word.verdict

    def _hear(self, patience_s: Seconds) -> Told | Asked | None:
        """Return the next word, waiting so long at most for it; None if there is none."""
        until = self._clock() + patience_s
        try:
            while (word := self._lines.next()) is None:
                left_s = max(0.0, until - self._clock())
                if not select.select([self._link], [], [], left_s)[0]:
                    return None
                piece = self._link.recv(PIECE_BYTES)
                if not piece:
                    raise GuardTroubleError("its process ended", is_final=True)
                self._lines.add(piece)
        except (OSError, BadFrameError) as error:
            said = " ".join(str(error).split())
            raise GuardTroubleError(f"its process is lost ({said})", is_final=True) from error
        return word

    def _send(self, word: Asked) -> None:
        """Send a word as a whole: nothing that was not read waits before a question."""
        line = line_of(word)
        try:
            sent = self._link.send(line)
        except OSError as error:
            raise GuardTroubleError(f"its process is lost ({error})", is_final=True) from error
        if sent < len(line):
            raise GuardTroubleError("its process takes no questions", is_final=True)


def harder(one: Verdict, other: Verdict) -> Verdict:
    """Return the verdict of two that shortens windows more; of two nudges the smaller factor."""
    match one, other:
        case NudgeDown(), NudgeDown():
            return min(one, other, key=lambda nudge: nudge.factor)
        case (NudgeDown(), _) | (SuppressGrowth(), Stable()):
            return one
        case _:
            return other


async def start_guard(
    text: str, *, source: str, env: Mapping[str, str], load_s: Seconds, ceiling_s: Seconds
) -> AskedGuard | None:
    """Start the process of the guard that a setting names; None if it is one of ours.

    Args:
        text: of `run.guard`, already of a form that can name one.
        source: where the setting came from.
        env: of the process.
        load_s: how long its module may take to load.
        ceiling_s: of one answer.

    Raises:
        ConfigError: it cannot be had, or not in time.
    """
    if text in set(GuardKind):
        return None
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    with theirs:
        words = ("--asked-fd", str(theirs.fileno()), "--guard", text)
        # What a guard prints goes to this process's standard error, by the child's own choice.
        child = spawn(python_command(_PROCESS, *words), env=env, pass_fds=(theirs.fileno(),))
    guard = AskedGuard(child, ours, GuardReady(name=text, history=()), ceiling_s=ceiling_s)
    try:
        with anyio.fail_after(load_s):
            first = await _first_word(ours)
    except TimeoutError:
        first = GuardRefused(
            reason=f"was not loaded in {load_s:g} s", fix="make its module faster to import"
        )
    except BaseException:
        await guard.close()
        raise
    if isinstance(first, GuardReady):
        return AskedGuard(child, ours, first, ceiling_s=ceiling_s)
    await guard.close()
    assert isinstance(first, GuardRefused)
    raise ConfigError("guard", text, first.reason, source=source, fix=first.fix)


async def _first_word(link: socket.socket) -> GuardReady | GuardRefused:
    """Return what the process says first; an end without a word is a refusal."""
    lines = Lines()
    while True:
        await anyio.wait_readable(link)
        try:
            piece = link.recv(PIECE_BYTES)
        except ConnectionError:
            piece = b""
        if not piece:
            return GuardRefused(
                reason="ended its process while it was loaded; what it said is above",
                fix="import its module in a Python of your own to see why",
            )
        try:
            lines.add(piece)
            word = lines.next()
        except BadFrameError as error:
            return GuardRefused(reason=str(error), fix="report this")
        if isinstance(word, GuardReady | GuardRefused):
            return word
