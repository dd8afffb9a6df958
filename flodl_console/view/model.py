"""Everything that the console knows, in one frozen value.

What it is: the state that `view.fold` makes from records and panels are selected from.
What it is not: what is on screen; sorting, filters and focus belong to the screens.
Who drives it: the app keeps the newest one and gives slices of it to widgets.

Instants ending in `_at_s` and `now_s` are the console's own monotonic clock.
"""

from dataclasses import dataclass
from typing import Final

from flodl_console.view.records import LinkState, PlaybackMoved, SourceKind
from flodl_core.telemetry.records import EventRecord, WindowRecord
from flodl_core.telemetry.state import StateDocument

MAX_WINDOWS: Final = 2_000
MAX_EVENTS: Final = 4_000
STALE_AFTER_S: Final = 3.0
"""A document that is older than this is called stale while its road is live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleView:
    """What the console knows at one moment."""

    source: SourceKind | None = None
    """None until a feed has begun."""
    label: str = ""
    """The address, the run directory, or the scenario."""
    is_read_only: bool = False
    link: LinkState = LinkState.LOADING
    link_detail: str = ""
    """One sentence of the feed: what happened to the road, what is expected."""
    retry_at_s: float | None = None
    """When the next attempt is made, while disconnected."""
    document: StateDocument | None = None
    """The newest one; what it says is as old as `received_at_s`."""
    received_at_s: float | None = None
    """When the newest document came."""
    windows: tuple[WindowRecord, ...] = ()
    """Oldest first, at most MAX_WINDOWS, of one run."""
    windows_lost: int = 0
    """Windows between known ones that the run had dropped before they were read."""
    events: tuple[EventRecord, ...] = ()
    """Oldest first, at most MAX_EVENTS, of one run."""
    events_lost: int = 0
    pages_fault: str = ""
    """Why windows and events cannot be read although documents can; empty if they can."""
    playback: PlaybackMoved | None = None
    """Where a replay or demo stands; None for a live run."""
    now_s: float = 0.0
    document_bytes: int | None = None
    document_ms: float | None = None
    """How long the newest document took to arrive."""

    @property
    def age_s(self) -> float | None:
        """Seconds since the newest document came; None before the first."""
        if self.received_at_s is None:
            return None
        return max(0.0, self.now_s - self.received_at_s)

    @property
    def is_stale(self) -> bool:
        """Whether a live road has been silent for longer than STALE_AFTER_S."""
        if self.source is not SourceKind.LIVE or self.link is not LinkState.LIVE:
            return False
        return self.age_s is not None and self.age_s > STALE_AFTER_S

    @property
    def is_current(self) -> bool:
        """Whether what is shown is the present of its source, so that one may act on it."""
        return self.document is not None and self.link is LinkState.LIVE and not self.is_stale


def initial() -> ConsoleView:
    """Return the view before anything is known."""
    return ConsoleView()
