"""What a feed says, one frozen record each: the only input of the console's state.

What it is: the vocabulary between a feed and the fold.
What it is not: Textual messages; those carry a record across a worker's border.
Who drives it: live, replay and demo feeds make them, `view.fold` consumes them.

`at_s` is the console's own monotonic clock, in seconds.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from flodl_core.telemetry.records import EventPage, WindowPage
from flodl_core.telemetry.state import StateDocument


class SourceKind(StrEnum):
    """Where the data comes from."""

    LIVE = "live"
    REPLAY = "replay"
    DEMO = "demo"


class LinkState(StrEnum):
    """How the road to the run is."""

    LOADING = "loading"
    """Nothing was received yet."""
    LIVE = "live"
    DISCONNECTED = "disconnected"
    """The last attempt failed; another one follows."""
    ENDED = "ended"
    """The run is over and its port is gone; what is shown is the last that was known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOpened:
    """A feed begins."""

    kind: SourceKind
    label: str
    """The address, the run directory, or the scenario."""
    is_read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentArrived:
    """A status document was read."""

    document: StateDocument
    at_s: float
    size_bytes: int
    took_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsArrived:
    """A page of window records was read."""

    page: WindowPage
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsArrived:
    """A page of events was read."""

    page: EventPage
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesChanged:
    """Windows or events cannot be read any more, or can be again; documents come all the same."""

    detail: str
    """Why not, in one clause; empty if they can."""
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChanged:
    """The road to the run changed."""

    state: LinkState
    detail: str
    """One sentence: what happened, what is expected."""
    at_s: float
    retry_in_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybackMoved:
    """Where a replay or a demo stands."""

    position_s: float
    length_s: float
    speed: float
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybackReset:
    """The playback jumped: history and events known so far are void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockTicked:
    """Time passed, so ages grew."""

    at_s: float


Record: TypeAlias = (
    SourceOpened
    | DocumentArrived
    | WindowsArrived
    | EventsArrived
    | PagesChanged
    | LinkChanged
    | PlaybackMoved
    | PlaybackReset
    | ClockTicked
)
