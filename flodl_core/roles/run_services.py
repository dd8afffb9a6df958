"""What a controller performs the coordinator's effects with, in one record."""

from collections.abc import Callable
from dataclasses import dataclass

from flodl_core.roles.alerting import AlertDesk
from flodl_core.roles.saving import BundleWriter
from flodl_core.roles.window import JoinWindow
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.telemetry.sample_log import SampleLog


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """Of one run."""

    window: JoinWindow
    """The hosts' control links."""
    writer: BundleWriter
    sample_log: SampleLog | None
    desk: AlertDesk
    log: ProcessLog
    say: Callable[[str], None]
    """Takes single lines for the person who started the run."""
