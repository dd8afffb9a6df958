"""The events: what happened, root causes first, consequences folded under them.

What it is: the event list filtered, searched and folded, as texts.
What it is not: the log.
Who drives it: the Events screen; the Rank screen shows those of one rank.
"""

from dataclasses import dataclass

from flodl_console.view.tones import Glyph, Tone
from flodl_core.telemetry.records import EventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events an operator wants to see."""

    kinds: frozenset[EventKind] = frozenset()
    """Only these; all if empty."""
    min_severity: str = "info"
    """info, warn or critical: these and graver ones."""
    text: str = ""
    """Words that must all be in it: name, path, text, fix or who."""
    rank: int | None = None
    """Only those of one rank."""
    is_newest_first: bool = True
    unfolded: frozenset[int] = frozenset()
    """Numbers of the root causes whose consequences are shown."""
    is_all_unfolded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One event as texts."""

    seq: int
    time: str
    """Time of day in UTC, `14:03:07`; at most 8 cells."""
    age: str
    """The run's age then, `2 h 07 m`, at most 10 cells."""
    kind: EventKind
    severity: str
    """`info`, `warn` or `critical`."""
    tone: Tone
    glyph: Glyph
    where: str
    """`run`, `blue`, `rank 3` or `rank 3 on blue`, at most 32 cells."""
    text: str
    """One sentence, at most 400 cells, without what other columns say."""
    fix: str
    """What to do about it, at most 240 cells; empty if nothing is known."""
    who: str
    """Who asked for it, at most 48 cells; empty if nobody."""
    count: int
    depth: int
    """0 for a root cause, 1 for a consequence under it."""
    consequences: int
    """How many events follow from this one."""
    is_folded: bool
    """Whether it has consequences that are not shown."""
    fold_text: str
    """`+3 that follow`, at most 20 cells; empty without consequences."""
    rank: int | None
    """The rank to jump to; None if it is about none."""
    host: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsPanel:
    """The events that were asked for."""

    seqs: tuple[int, ...]
    """Every event that is listed, in order; the cursor follows one of these."""
    rows: tuple[EventRow, ...]
    """The asked part of `seqs`."""
    first_row: int
    """Where `rows` begins in `seqs`."""
    total: int
    """Known events, without the query."""
    hidden: int
    """Events that match but are folded away."""
    summary: str
    """`12 of 240 events · 2 critical`, at most 78 cells."""
    lost_text: str
    """What is no longer known, at most 78 cells; empty if nothing was lost."""
    empty_text: str
    """What stands in the place of rows where there are none; empty otherwise."""
