"""What operators and signals may do to a run in its room: stop, checkpoint, drain.

Each says in words what will happen, or why it will not. The coordinator acts on it;
before the world formed there is nothing but the window to end.
"""

from collections.abc import Callable

from flodl_core.coordinator.events import (
    CheckpointRequested,
    DrainRequested,
    StopKind,
    StopRequested,
)
from flodl_core.ids import ExitCode, HostName, Mode
from flodl_core.roles.controller import Controller
from flodl_core.roles.formation import RunPlan

NOT_TRAINING = "the run is not training yet"


class RunOperators:
    """Passes on what operators want.

    Attributes:
        is_abrupt: whether the run was stopped at once.
    """

    def __init__(
        self,
        plan: RunPlan,
        *,
        controller: Callable[[], Controller | None],
        abort: Callable[[str], None],
    ) -> None:
        """Speak for a run.

        Args:
            plan: of the run.
            controller: returns that of the formed world; None before it formed.
            abort: ends the window, with the reason.
        """
        self.is_abrupt = False
        self._plan = plan
        self._controller = controller
        self._abort = abort

    def stop(self, kind: StopKind, who: str, *, code: int = ExitCode.STOPPED_SAVED) -> str:
        """End the run; return what will happen."""
        controller = self._controller()
        if controller is None:
            self._abort(f"stopped by {who} before the world formed")
            return f"{who}: the window is closed, nothing was trained"
        if kind is StopKind.NOW:
            self.is_abrupt = True
            controller.post(StopRequested(kind, ExitCode.NOT_SAVED, who))
            return f"{who}: stopping at once, nothing more is saved"
        controller.post(StopRequested(kind, code, who))
        grace = self._plan.config.stop_grace_s
        paced = self._plan.mode is Mode.CPU_CADENCE
        end = "cutting the window" if paced else "finishing the window"
        return f"{who}: {end}, then saving (within {grace:g} s); once more: at once"

    def checkpoint(self, who: str) -> str | None:
        """Have a save made soon; return why not, or None."""
        controller = self._controller()
        if controller is None:
            return NOT_TRAINING
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
        controller.post(DrainRequested(HostName(host), who))
        return None
