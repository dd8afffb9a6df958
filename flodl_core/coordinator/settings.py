"""The coordinator's own numbers: those that ranks need not know.

What it is: one frozen record with the ceilings and intervals that RunSpec does
not carry. What a rank must know too (heartbeats, stall, progress, rendezvous)
lies in `messages.job.RunSpec`.
What it is not: configuration; the launcher resolves that and builds this.
Who drives it: the launcher, once.
"""

from dataclasses import dataclass, field

from flodl_core.coordinator.cadence import CadenceSettings
from flodl_core.coordinator.callback_desk import CallbackSettings
from flodl_core.errors import LocalProtocolError
from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """Ceilings and intervals of the scheduler.

    Raises:
        LocalProtocolError: a number is not positive.
    """

    stop_grace_s: Seconds = 25.0
    """From the stop request to the save of what is committed, if the window does not end before."""
    checkpoint_every_s: Seconds | None = 1800.0
    """Between saves, taken at the next commit; None saves at the end only."""
    checkpoint_every_epochs: int | None = None
    """Passes between saves; None makes none for that reason."""
    first_batch_timeout_s: Seconds = 1800.0
    """A rank that holds work may take this long for its first batch (compilation)."""
    leave_timeout_s: Seconds = 25.0
    """From Shutdown to the end of the run, whoever is still there."""
    host_drain_s: Seconds = 60.0
    """A pending cycle may wait this long for a worker host whose ranks are all gone."""
    wait_shown_after_s: Seconds = 5.0
    """Waits longer than this are shown."""
    max_failure: int | None = None
    """Lost ranks that end the run with a save; None goes on down to one rank."""
    cadence: CadenceSettings = field(default_factory=CadenceSettings)
    """Of the modes in Cadence; Sync has no use for them."""
    callbacks: CallbackSettings = field(default_factory=CallbackSettings)
    """Who evaluates, and how often."""
    partition_ratios: tuple[float, ...] = ()
    """Parts of an event in Sync, by rank of the world; equal if empty."""

    def __post_init__(self) -> None:
        numbers = {
            "stop_grace_s": self.stop_grace_s,
            "checkpoint_every_s": self.checkpoint_every_s,
            "checkpoint_every_epochs": self.checkpoint_every_epochs,
            "first_batch_timeout_s": self.first_batch_timeout_s,
            "leave_timeout_s": self.leave_timeout_s,
            "host_drain_s": self.host_drain_s,
            "wait_shown_after_s": self.wait_shown_after_s,
            "max_failure": self.max_failure,
        }
        for name, value in numbers.items():
            if value is not None and not value > 0:
                raise LocalProtocolError(f"{name} = {value}; expected a positive number")
