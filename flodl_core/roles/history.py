"""The history of a run: its last windows and events, for readers and for the record.

What it is: numbers, instants and causes for what happened, two bounded rings, and the
hand-over to the recorder. Nothing that is kept holds the token, or a control character
of a peer.
What it is not: the judge of what is worth an event; `run_story` words them.
Who drives it: the launcher's parts, on the event loop.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from flodl_core.coordinator.effects import RecordWindow
from flodl_core.ids import HostName, Rank
from flodl_core.net import clock
from flodl_core.roles.causes import CauseBook
from flodl_core.telemetry.alerts import path_of
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.telemetry.record_rings import MAX_EVENTS, MAX_WINDOWS, RecordRing
from flodl_core.telemetry.recorder import RunRecorder
from flodl_core.telemetry.records import EventKind, EventRecord, WindowRecord
from flodl_core.telemetry.state import StateDocument
from flodl_core.units import Seconds

Place = Callable[[Rank | None], tuple[HostName | None, int, int]]
"""Returns a rank's host, the number of hosts and of ranks."""

_HIDDEN = "[hidden]"
_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something that happened, before it has its number."""

    kind: EventKind
    name: str
    """One word with underscores."""
    text: str
    """One sentence; it may hold a peer's words."""
    severity: str = "info"
    rank: Rank | None = None
    host: str | None = None
    """As the host calls itself."""
    path: str | None = None
    """Where in the tree; found from rank and host if None."""
    fix: str = ""
    who: str | None = None
    count: int = 1


class RunHistory:
    """Keeps what happened.

    Args:
        recorder: gets everything that is kept.
        secrets: words that are hidden wherever they stand.
    """

    def __init__(self, recorder: RunRecorder, *, secrets: tuple[str, ...]) -> None:
        self.windows = RecordRing(MAX_WINDOWS)
        self.events = RecordRing(MAX_EVENTS)
        self._recorder = recorder
        self._secrets = re.compile("|".join(map(re.escape, secrets)), re.IGNORECASE)
        self._began = clock.now()
        self._causes = CauseBook()
        self._place: Place = _nowhere

    def uptime_s(self) -> Seconds:
        """Return the age of the run."""
        return clock.now() - self._began

    def set_world(self, place: Place) -> None:
        """Learn how to find a rank's host."""
        self._place = place

    def clean(self, text: str) -> str:
        """Return a peer's text without the run's secrets, on one line and harmless."""
        return show_untrusted(self._secrets.sub(_HIDDEN, text))

    def tell(self, happening: Happening) -> int:
        """Keep an event; returns its number."""
        own_host, hosts, ranks = self._place(happening.rank)
        host = happening.host or own_host
        shown = None if host is None else self.clean(host)
        seq = self.events.next_seq
        name, rank = happening.name, happening.rank
        record = EventRecord(
            seq=seq,
            at=clock.utc_iso(),
            uptime_s=round(self.uptime_s(), 3),
            kind=happening.kind,
            severity=happening.severity,
            name=name,
            path=happening.path or path_of(rank, shown, hosts=hosts, ranks=ranks),
            rank=rank,
            host=shown,
            text=self.clean(happening.text),
            fix=self.clean(happening.fix),
            who=happening.who,
            count=happening.count,
            cause_seq=self._causes.cause_of(name, rank=rank, host=host),
        )
        self._causes.note(name, seq, rank=rank, host=host)
        self.events.add(seq, record.model_dump_json().encode())
        self._recorder.take_event(record)
        return seq

    def take_document(self, document: StateDocument) -> None:
        """Hand a published document to the record."""
        self._recorder.take_document(document)

    def keep_window(self, window: RecordWindow) -> None:
        """Keep a cycle that ended."""
        seq = self.windows.next_seq
        record = WindowRecord(
            seq=seq,
            at=clock.utc_iso(),
            uptime_s=round(self.uptime_s(), 3),
            cycle=window.cycle,
            version=window.version,
            epoch=window.epoch,
            global_step=window.global_step,
            outcome=window.outcome,
            samples_done=window.samples_done,
            samples_total=window.samples_total,
            loss=_short(window.loss),
            throughput=_short(window.throughput),
            ideal_throughput=_short(window.ideal_throughput),
            window_ms=_short(window.window_ms),
            sync_ms=_short(window.sync_ms),
            overhead=_short(window.overhead),
            anchor=window.anchor,
            anchor_rank=window.anchor_rank,
            elche_phase=window.elche_phase,
            verdict=window.verdict,
            reason=window.reason,
            batch_counts=window.batch_counts,
            ms_per_batch=tuple(map(_short, window.ms_per_batch)),
            weights=tuple(map(_short, window.weights)),
            divergences=tuple(map(_short, window.divergences)),
        )
        self.windows.add(seq, record.model_dump_json().encode())
        self._recorder.take_window(record)


def _short(value: float | None) -> float | None:
    """Return a number with six digits: a plot and a table need no more."""
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def _nowhere(_: Rank | None) -> tuple[HostName | None, int, int]:
    return None, 2, 2
