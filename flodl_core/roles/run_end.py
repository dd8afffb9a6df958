"""How a run ended, and how long its end may take.

What it is: the first cause, once there is one, in the words that hosts, readers and the
summary get; and a scope around what is still waited for, which an impatient operator ends.
Who drives it: `run_room`.
"""

from collections.abc import Awaitable, Callable

import anyio

from flodl_core.coordinator.effects import RunFinished
from flodl_core.coordinator.events import StopKind
from flodl_core.errors import FlodlError
from flodl_core.ids import ExitCode
from flodl_core.messages.join import Abort, RunEnded
from flodl_core.telemetry.state import EndState


class RunEnd:
    """The end of one run; open until somebody says how it came.

    Attributes:
        finished: of a run that trained; None before, and of one that did not.
        failure: what kept it from training.
    """

    def __init__(self) -> None:
        self.finished: RunFinished | None = None
        self.failure: FlodlError | None = None
        self._over = anyio.Event()
        self._ending = anyio.CancelScope()

    def finish(self, finished: RunFinished) -> None:
        """Take what the coordinator said last."""
        self.finished = finished
        self._over.set()

    def fail(self, error: FlodlError) -> None:
        """Take what keeps the run from training; the first counts."""
        self.failure = self.failure or error
        self._over.set()

    async def wait(self) -> None:
        """Return once the run is over."""
        await self._over.wait()

    async def unless_hurried(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what is still to do, until it is done or somebody wants no more of it."""
        with self._ending:
            await work()

    def hurry(self, kind: StopKind) -> bool:
        """Return whether the run is over; a stop at once then waits for nobody any more."""
        if self._over.is_set() and kind is StopKind.NOW:
            self._ending.cancel()
        return self._over.is_set()

    def outcome(self) -> tuple[int, str]:
        """Return the exit code and one clause."""
        if self.finished is not None:
            return self.finished.exit_code, self.finished.reason
        assert self.failure is not None
        return self.failure.exit_code, self.failure.happened

    def state(self) -> EndState:
        """Return what readers of the status document get."""
        code, what = self.outcome()
        reason, detail = (what, self.finished.detail) if self.finished else ("failed", what)
        return EndState(exit_code=code, reason=reason, detail=detail)

    @property
    def summary(self) -> str:
        """Of a run that trained: why it ended, and what came of it."""
        assert self.finished is not None
        return f"{self.finished.reason}: {self.finished.detail}"

    def last_word(self, *, is_abrupt: bool) -> Abort | RunEnded:
        """Return what every host gets.

        Args:
            is_abrupt: whether the run was stopped at once; one that was saved by then ended well.
        """
        if self.finished is None:
            return Abort(reason=str(self.failure or "the run ended"))
        summary = self.summary
        if is_abrupt and self.finished.exit_code == ExitCode.NOT_SAVED:
            return Abort(reason=summary)
        return RunEnded(code=self.finished.exit_code, summary=summary)

    @property
    def is_good(self) -> bool:
        """Whether something that trained is left of it."""
        bad = (ExitCode.FAILED, ExitCode.WINDOW_FAILED)
        return self.finished is not None and self.finished.exit_code not in bad
