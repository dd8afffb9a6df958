"""What a run remembers of itself: one record a window, one record an event.

What it is: the frozen rows of `GET /history` and `GET /events`, and the pages that
carry them.
What it is not: the status document, which is the present, or the journal, which
keeps these rows on disk.
Who drives it: the launcher writes them; the console, pollers and a replay read.

Durations are in seconds unless the name says otherwise. Instants are UTC text and
the run's own age; nothing compares the clocks of two machines.
"""

from enum import StrEnum
from typing import Final

from pydantic import ValidationError

from flodl_core.errors import RemoteProtocolError
from flodl_core.telemetry.state import Section

RECORDS_VERSION: Final = 1
"""Grows when a field is removed or changes its meaning; added fields do not count."""


class EventKind(StrEnum):
    """What sort of thing happened."""

    LIFECYCLE = "lifecycle"
    """A phase began or ended, an epoch ended, a save was written."""
    ADMISSION = "admission"
    """A host joined or left the window."""
    REFUSAL = "refusal"
    """A host was turned away."""
    ALERT = "alert"
    """An alert as it was emitted."""
    OPERATOR = "operator"
    """A person or a signal asked for something."""


class WindowRecord(Section):
    """One averaging that ended: a committed, unrealized or failed cycle."""

    seq: int
    """Counts up from 1 without a gap."""
    at: str
    """UTC, ISO 8601."""
    uptime_s: float
    cycle: int
    version: int
    epoch: int
    global_step: int
    outcome: str
    samples_done: int
    samples_total: int
    loss: float | None = None
    throughput: float | None = None
    """Samples a second."""
    ideal_throughput: float | None = None
    window_ms: float | None = None
    """From the finish of the cycle before to the finish of this one."""
    sync_ms: float | None = None
    overhead: float | None = None
    anchor: int | None = None
    anchor_rank: int | None = None
    elche_phase: str | None = None
    verdict: str | None = None
    reason: str = ""
    batch_counts: tuple[int, ...] = ()
    """By rank, of the next window; 0 for a rank that is gone."""
    ms_per_batch: tuple[float | None, ...] = ()
    weights: tuple[float | None, ...] = ()
    """By rank: its part of the mass of this round, 0 to 1."""
    divergences: tuple[float | None, ...] = ()


class EventRecord(Section):
    """One thing that happened."""

    seq: int
    """Counts up from 1 without a gap."""
    at: str
    """UTC, ISO 8601."""
    uptime_s: float
    kind: EventKind
    severity: str
    """info, warn or critical."""
    name: str
    """What happened, as one word with underscores: `host_joined`, `rank_lost`."""
    path: str = "root"
    """root, root/<host>, root/rank<N> or root/<host>/rank<N>."""
    rank: int | None = None
    host: str | None = None
    text: str
    """One sentence for a person."""
    fix: str = ""
    who: str | None = None
    """Who asked for it, where somebody did."""
    count: int = 1
    cause_seq: int | None = None
    """The event that this one follows from, if that is known."""


class WindowPage(Section):
    """The answer of `GET /history?since=N`: records after N, oldest first."""

    version: int = RECORDS_VERSION
    oldest_seq: int
    """The oldest record that is still kept; a gap before it is lost. 0 if none was made."""
    newest_seq: int
    records: tuple[WindowRecord, ...] = ()


class EventPage(Section):
    """The answer of `GET /events?since=N`: records after N, oldest first."""

    version: int = RECORDS_VERSION
    oldest_seq: int
    newest_seq: int
    records: tuple[EventRecord, ...] = ()


def read_window_page_untrusted(body: bytes) -> WindowPage:
    """Read a page of windows that another process served.

    Raises:
        RemoteProtocolError: the bytes are no such page. Nothing else escapes.
    """
    try:
        return WindowPage.model_validate_json(body)
    except (ValidationError, RecursionError, UnicodeDecodeError) as error:
        raise _no_page("history", error) from error


def read_event_page_untrusted(body: bytes) -> EventPage:
    """Read a page of events that another process served.

    Raises:
        RemoteProtocolError: the bytes are no such page. Nothing else escapes.
    """
    try:
        return EventPage.model_validate_json(body)
    except (ValidationError, RecursionError, UnicodeDecodeError) as error:
        raise _no_page("events", error) from error


def _no_page(what: str, error: Exception) -> RemoteProtocolError:
    first = str(error).splitlines()[0]
    return RemoteProtocolError(
        f"the answer is no page of {what} of flodl ({first})",
        fix="use the flodl version that started the run",
    )
