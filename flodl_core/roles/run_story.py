"""What is worth an event of a run, and in which words.

What it is: one method for each thing that happens; each keeps one event. What repeats
fast, such as cuts of windows, is folded like alerts are.
What it is not: a log, or a decision.
Who drives it: the run's room, its controller, its alerts and its operators.
"""

from collections.abc import Mapping
from typing import Final

from flodl_core.coordinator.effects import Announce, RecordWindow
from flodl_core.ids import ClusterPhase, ExitCode, HostName, Rank
from flodl_core.net import clock
from flodl_core.roles.exposure import FIX_EXPOSED
from flodl_core.roles.history import Happening, Place, RunHistory
from flodl_core.telemetry.alerts import AlertBook, AlertRecord
from flodl_core.telemetry.quantities import plural
from flodl_core.telemetry.records import EventKind
from flodl_core.telemetry.state import RefusalState, WaitState

GOOD_ENDS: Final = (ExitCode.DONE, ExitCode.STOPPED_SAVED, ExitCode.INTERRUPTED_SAVED)

_TOLD: Final[Mapping[str, str]] = {
    "epoch_aggregated": "epoch_ended",
    "evaluated": "evaluated",
    "host_drained": "host_drained",
    "drain_called_off": "drain_called_off",
    "tail_dropped": "tail_dropped",
    "ranks_idle": "ranks_idle",
}
"""Announcements that are events of their own, and the names of those events."""

_REFUSED: Final = "host_refused"
_MOST_REFUSED: Final = 256

_FOLDED: Final[Mapping[str, str]] = {"window_cut": "info", "samples_dropped": "warn"}
"""Announcements that may come with every window, and their severity."""


class RunStory:
    """Words what happens, and keeps it.

    Args:
        history: of the run.
    """

    def __init__(self, history: RunHistory) -> None:
        self.history = history
        self._folded = AlertBook()
        self._lost_hosts: set[HostName] = set()
        self._drained: set[HostName] = set()
        self._refused: dict[str, RefusalState] = {}
        self._last_window: RecordWindow | None = None
        self._is_open = False
        self._has_ended = False

    def set_world(self, place: Place) -> None:
        """Learn how to find a rank's host."""
        self.history.set_world(place)

    def flush_due(self) -> None:
        """Keep what was folded and is due; called about each second."""
        for record in self._folded.flush_due(clock.now()):
            self._keep_folded(record)

    # -- the window ---------------------------------------------------------------

    def phase_changed(self, phase: ClusterPhase, reason: str) -> None:
        """The run entered a phase, or its window opened; after its end nothing more is told."""
        if self._has_ended:
            return
        opened = phase is ClusterPhase.WAITING and not self._is_open
        self._is_open = True
        self.history.tell(
            Happening(
                kind=EventKind.LIFECYCLE,
                name="window_opened" if opened else "phase_changed",
                severity="critical" if phase is ClusterPhase.FAILED else "info",
                text="the join window is open" if opened else f"{phase.value}: {reason}",
            )
        )

    def host_joined(self, host: HostName, address: str, devices: tuple[str, ...]) -> None:
        """A host was admitted."""
        ranks = plural(len(devices), "rank")
        self.history.tell(
            Happening(
                kind=EventKind.ADMISSION,
                name="host_joined",
                host=host,
                text=f"{host} joined from {address} with {ranks}: {', '.join(devices)}",
            )
        )

    def host_left(self, host: HostName) -> None:
        """A host left before the world formed."""
        self.history.tell(
            Happening(
                kind=EventKind.ADMISSION,
                name="host_left",
                severity="warn",
                host=host,
                text=f"{host} left before the world formed",
            )
        )

    def host_refused(self, refusal: RefusalState) -> None:
        """A host was turned away; the refusal is clean already. One that dials on is folded."""
        if len(self._refused) >= _MOST_REFUSED:
            self._refused.clear()
        path = f"{refusal.host}: {refusal.reason}"
        self._refused[path] = refusal
        text = f"{refusal.host} at {refusal.address} was refused: {refusal.reason}"
        self._fold(_REFUSED, text, "warn", path=path)

    def peer_exposed(self, address: str, text: str) -> None:
        """A peer outside private networks was served without TLS."""
        self.history.tell(
            Happening(
                kind=EventKind.ADMISSION,
                name="peer_exposed",
                severity="warn",
                path=address,
                text=text,
                fix=FIX_EXPOSED,
            )
        )

    # -- the formed world ------------------------------------------------------------

    def host_dismissed(self, host: HostName) -> None:
        """A host is told that its part is over."""
        self._drained.add(host)

    def host_lost(self, host: HostName, why: str) -> None:
        """A host of the formed world is gone; only its first sign counts."""
        if host in self._lost_hosts:
            return
        self._lost_hosts.add(host)
        was_drained = host in self._drained
        self.history.tell(
            Happening(
                kind=EventKind.ADMISSION if was_drained else EventKind.ALERT,
                name="host_left" if was_drained else "host_lost",
                severity="info" if was_drained else "critical",
                host=host,
                text=f"host {host} left after its drain" if was_drained else why,
            )
        )

    def alert(self, record: AlertRecord, *, rank: Rank | None) -> None:
        """An alert was emitted."""
        self.history.tell(
            Happening(
                kind=EventKind.ALERT,
                name=record.alert_class,
                severity=record.severity,
                rank=rank,
                path=record.path,
                text=record.detail,
                count=record.count,
            )
        )

    def announced(self, effect: Announce) -> None:
        """The coordinator stated a fact; some are events."""
        if effect.topic in _FOLDED:
            self._fold(effect.topic, effect.text, _FOLDED[effect.topic])
        elif effect.topic in _TOLD:
            host = effect.fields.get("host")
            self.history.tell(
                Happening(
                    kind=EventKind.LIFECYCLE,
                    name=_TOLD[effect.topic],
                    host=host if isinstance(host, str) else None,
                    text=effect.text,
                )
            )

    def window(self, window: RecordWindow) -> None:
        """A cycle ended; what it changed of the cadence is an event."""
        before, self._last_window = self._last_window, window
        self.history.keep_window(window)
        if before is None:
            return
        if (before.anchor, before.anchor_rank) != (window.anchor, window.anchor_rank):
            self._fold("anchor_changed", window.reason, "info")
        if before.elche_phase != window.elche_phase:
            text = f"the cadence is {window.elche_phase}, was {before.elche_phase}: {window.reason}"
            self._fold("elche_phase_changed", text, "info")
        if before.verdict != window.verdict and window.verdict is not None:
            severity = "info" if window.verdict == "stable" else "warn"
            self._fold("verdict_changed", f"verdict: {window.verdict}", severity)

    def saved(self, version: int, path: str) -> None:
        """A bundle is complete on disk."""
        self.history.tell(
            Happening(
                kind=EventKind.LIFECYCLE,
                name="save_written",
                text=f"version {version} is saved at {path}",
            )
        )

    def waited(self, wait: WaitState) -> None:
        """Somebody has waited for a while, and the wait is worth an event."""
        who = f"rank {wait.rank}: " if wait.rank is not None else ""
        limit = f" of {wait.ceiling_s:.0f} s" if wait.ceiling_s is not None else " s"
        text = f"{who}{wait.phase}, for {wait.age_s:.0f}{limit}, then {wait.outcome}"
        self.history.tell(
            Happening(
                kind=EventKind.LIFECYCLE,
                name="wait",
                severity="warn",
                rank=None if wait.rank is None else Rank(wait.rank),
                host=wait.host,
                text=text,
            )
        )

    def stack(self, rank: Rank, where: str) -> None:
        """A rank that was waited for too long has said where it is."""
        self.history.tell(
            Happening(
                kind=EventKind.LIFECYCLE,
                name="stack",
                severity="warn",
                rank=rank,
                text=f"rank {rank} is in {where or 'no code that could be told'}",
            )
        )

    # -- operators and the end -----------------------------------------------------------

    def asked(
        self, name: str, who: str, text: str, *, host: str | None = None, rank: Rank | None = None
    ) -> None:
        """An operator or a signal asked for something that will be done.

        Args:
            name: start, stop, checkpoint, drain or evict.
            who: asked.
            text: what, and what follows.
            host: that it is about.
            rank: that it is about.
        """
        self.history.tell(
            Happening(kind=EventKind.OPERATOR, name=name, who=who, text=text, host=host, rank=rank)
        )

    def ended(self, exit_code: int, reason: str, detail: str) -> None:
        """The run is over."""
        self._has_ended = True
        for record in self._folded.flush(clock.now()):
            self._keep_folded(record)
        told = f"{reason}: {detail}" if detail else reason
        self.history.tell(
            Happening(
                kind=EventKind.LIFECYCLE,
                name="run_ended",
                severity="info" if exit_code in GOOD_ENDS else "critical",
                text=f"exit code {exit_code}: {told}",
            )
        )

    def _fold(self, name: str, text: str, severity: str, *, path: str = "root") -> None:
        for record in self._folded.raise_alert(
            name, path, detail=text, now=clock.now(), severity=severity
        ):
            self._keep_folded(record)

    def _keep_folded(self, record: AlertRecord) -> None:
        is_refusal = record.alert_class == _REFUSED
        refusal = self._refused.get(record.path) if is_refusal else None
        self.history.tell(
            Happening(
                kind=EventKind.REFUSAL if is_refusal else EventKind.LIFECYCLE,
                host=refusal.host if refusal else None,
                fix=refusal.fix if refusal else "",
                name=record.alert_class,
                severity=record.severity,
                text=record.detail,
                count=record.count,
            )
        )
