"""One rank in full: its facts, its two signals, what it waits for, what happened to it.

What it is: the Rank screen's content in words and numbers.
What it is not: plots; `view.plots` makes those of one rank too.
Who drives it: the Rank screen.
"""

from dataclasses import dataclass

from flodl_console.view.events import EventRow
from flodl_console.view.marks import RankMark
from flodl_console.view.tones import Glyph, Tone
from flodl_console.view.waits import WaitRow


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalGauge:
    """An age that is growing toward its ceiling."""

    label: str
    """`heartbeat` or `progress`."""
    text: str
    """`3.1 / 30 s`, at most 20 cells."""
    fraction: float | None
    """Age as a part of the ceiling, 0 to 1; None where one is not known."""
    outcome: str
    """What happens at the ceiling, at most 60 cells."""
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailRow:
    """One fact of a rank."""

    label: str
    """At most 16 cells."""
    text: str
    """With its unit, at most 60 cells."""
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailGroup:
    """Facts that belong together."""

    title: str
    """At most 24 cells."""
    rows: tuple[DetailRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrend:
    """The last values of one quantity, for a sparkline."""

    label: str
    """With the unit, at most 16 cells: `ms/batch`."""
    values: tuple[float | None, ...]
    """Oldest first, at most 240; None is a gap."""
    last: str
    """The newest with its unit, at most 16 cells."""
    span: str
    """Lowest to highest, at most 32 cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDetail:
    """One rank in full."""

    rank: int
    is_found: bool
    """False if the run has no such rank (now)."""
    title: str
    """`rank 2 on blue, cuda:0`, at most 76 cells."""
    state: str
    """The state in words, at most 40 cells."""
    tone: Tone
    glyph: Glyph
    mark: RankMark
    note: str
    """What sets it apart and what follows, at most 120 cells; empty if nothing."""
    heartbeat: SignalGauge
    progress: SignalGauge
    groups: tuple[DetailGroup, ...]
    """Work, averaging, device."""
    trends: tuple[RankTrend, ...]
    """ms/batch, batches, weight, divergence."""
    waits: tuple[WaitRow, ...]
    events: tuple[EventRow, ...]
    """Newest first, at most 50."""
    previous_rank: int | None
    """The next lower rank that exists."""
    next_rank: int | None
