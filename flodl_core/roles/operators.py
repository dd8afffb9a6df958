"""What operators and signals may do to a run in its room: stop, checkpoint, drain, evict.

Each says in words what will happen, or why it will not, and what will happen is an event
with who asked. The coordinator acts on it; before the world formed there is nothing but
the window to end.
"""

import signal
from collections.abc import Callable
from typing import Final

import anyio

from flodl_core.coordinator.events import (
    CheckpointRequested,
    DrainRequested,
    EvictRequested,
    StopKind,
    StopRequested,
)
from flodl_core.ids import ExitCode, HostName, Rank
from flodl_core.roles.controller import Controller
from flodl_core.roles.formation import RunPlan
from flodl_core.roles.run_story import RunStory
from flodl_core.telemetry.logs import ProcessLog

NOT_TRAINING = "the run is not training yet"
_OVER: Final = "the run has ended, its hosts are leaving; once more: without waiting for them"
_OVER_NOW: Final = "the run has ended; nobody is waited for"


class RunOperators:
    """Passes on what operators want.

    Attributes:
        is_abrupt: whether the run was stopped at once.
        was_interrupted: whether the last signal was SIGINT.
    """

    def __init__(
        self,
        plan: RunPlan,
        story: RunStory,
        *,
        controller: Callable[[], Controller | None],
        start: Callable[[str], None],
        abort: Callable[[str], None],
        hurry: Callable[[StopKind], bool],
    ) -> None:
        """Speak for a run.

        Args:
            plan: of the run.
            story: of the run.
            controller: returns that of the formed world; None before it formed.
            start: closes the window if it may be closed; takes who asked.
            abort: ends the window, with the reason.
            hurry: returns whether the run is over, whose end waits for nobody any more from a
                stop at once on.
        """
        self.is_abrupt = False
        self.was_interrupted = False
        self._plan = plan
        self._story = story
        self._start = start
        self._controller = controller
        self._abort = abort
        self._hurry = hurry

    async def watch_signals(self, log: ProcessLog, say: Callable[[str], None]) -> None:
        """End the run at SIGINT and SIGTERM, at once at the second; runs until cancelled.

        A terminal that hangs up afterwards, while the run's end is written, does as before.
        """
        at_hangup = signal.getsignal(signal.SIGHUP)
        try:
            await self._obey_signals(log, say)
        finally:
            signal.signal(signal.SIGHUP, at_hangup or signal.SIG_DFL)

    async def _obey_signals(self, log: ProcessLog, say: Callable[[str], None]) -> None:
        names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        kind = StopKind.SAVE
        with anyio.open_signal_receiver(*names) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    log.info("terminal_gone")
                    continue
                self.was_interrupted = number == signal.SIGINT
                is_interrupt = self.was_interrupted
                code = ExitCode.INTERRUPTED_SAVED if is_interrupt else ExitCode.STOPPED_SAVED
                who = signal.Signals(number).name
                say(f"{who}: {self.stop(kind, who, code=code)}")
                kind = StopKind.NOW

    def start(self, who: str) -> None:
        """Close the window; the answer to whether it may be was given before."""
        self._story.asked("start", who, f"{who} starts the training")
        self._start(who)

    def stop(self, kind: StopKind, who: str, *, code: int = ExitCode.STOPPED_SAVED) -> str:
        """End the run; return what will happen."""
        if self._hurry(kind):
            return _OVER_NOW if kind is StopKind.NOW else _OVER
        words = self._stop_words(kind)
        self._story.asked("stop", who, f"{who} stops the run: {words}")
        controller = self._controller()
        if controller is None:
            self._abort(f"stopped by {who} before the world formed")
        elif kind is StopKind.NOW:
            self.is_abrupt = True
            controller.post(StopRequested(kind, ExitCode.NOT_SAVED, who))
        else:
            controller.post(StopRequested(kind, code, who))
        return words

    def _stop_words(self, kind: StopKind) -> str:
        if self._controller() is None:
            return "the window is closed, nothing was trained"
        if kind is StopKind.NOW:
            return "stopping at once, nothing more is saved"
        grace = self._plan.config.stop_grace_s
        paced = self._plan.mode.has_counts
        end = "cutting the window" if paced else "finishing the window"
        return f"{end}, then saving (within {grace:g} s); once more: at once"

    def checkpoint(self, who: str) -> str | None:
        """Have a save made soon; return why not, or None."""
        controller = self._controller()
        if controller is None:
            return NOT_TRAINING
        self._story.asked("checkpoint", who, f"{who} asks for a checkpoint at the next commit")
        controller.post(CheckpointRequested(who))
        return None

    def drain(self, host: str, who: str) -> str | None:
        """Have a host leave at the next average; return why not, or None."""
        controller = self._controller()
        if controller is None:
            return NOT_TRAINING
        refusal = controller.coordinator.refuse_drain(HostName(host))
        if refusal:
            return refusal
        text = f"{who} drains {host}: its ranks leave after the next average"
        self._story.asked("drain", who, text, host=host)
        controller.post(DrainRequested(HostName(host), who))
        return None

    def evict(self, rank: Rank, who: str) -> str | None:
        """Have a rank ended; return why not, or None."""
        controller = self._controller()
        if controller is None:
            return NOT_TRAINING
        refusal = controller.coordinator.refuse_evict(rank)
        if refusal:
            return refusal
        text = f"{who} evicts rank {rank}: the others train its samples"
        self._story.asked("evict", who, text, rank=rank)
        controller.post(EvictRequested(rank, who))
        return None
