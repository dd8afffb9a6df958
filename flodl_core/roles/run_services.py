"""What a controller performs the coordinator's effects with, and those that are only kept.

What it is: the run's services in one record, and where samples, windows, alerts, facts
and notes go.
What it is not: a link; what is sent is the controller's.
Who drives it: the controller, on the event loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from flodl_core.coordinator.effects import (
    Announce,
    RaiseAlert,
    RecordSamples,
    RecordWindow,
    Severity,
)
from flodl_core.machines import Note
from flodl_core.roles.alerting import AlertDesk
from flodl_core.roles.run_story import RunStory
from flodl_core.roles.saving import BundleWriter
from flodl_core.roles.window import JoinWindow
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.telemetry.sample_log import SampleLog

SAID_TOPICS = frozenset(
    {
        "tail_dropped",
        "ranks_idle",
        "samples_dropped",
        "save_requested",
        "drain_requested",
        "drain_called_off",
        "evict_requested",
        "host_drained",
    }
)
"""Announcements that the status document does not show, so they are said as lines."""

KeptEffect: TypeAlias = RecordSamples | RecordWindow | RaiseAlert | Announce | Note


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """Of one run."""

    window: JoinWindow
    """The hosts' control links."""
    writer: BundleWriter
    sample_log: SampleLog | None
    desk: AlertDesk
    story: RunStory
    log: ProcessLog
    say: Callable[[str], None]
    """Takes single lines for the person who started the run."""

    def keep(self, effect: KeptEffect) -> None:
        """Keep an effect that nobody is sent."""
        match effect:
            case RecordSamples():
                self._keep_samples(effect)
            case RecordWindow():
                self.story.window(effect)
            case RaiseAlert():
                severity = "critical" if effect.severity is Severity.CRITICAL else "warn"
                self.desk.raise_alert(
                    effect.alert_class, effect.detail, severity=severity, rank=effect.rank
                )
            case Announce():
                self.log.info(effect.topic, text=effect.text)
                self.story.announced(effect)
                if effect.topic in SAID_TOPICS:
                    self.say(effect.text)
            case Note():
                self.log.debug(effect.code, **effect.fields)

    def _keep_samples(self, effect: RecordSamples) -> None:
        if self.sample_log is not None and not self.sample_log.record(effect.entries):
            error = self.sample_log.last_error or "write failed"
            self.desk.raise_alert("sample_log_failed", error)
