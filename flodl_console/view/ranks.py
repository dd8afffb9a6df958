"""The rank table: every rank, what it does, who is slow, late or gone.

What it is: columns with their room, and rows as texts in the order wanted.
What it is not: a widget; which rows are in sight and where the cursor stands is not known here.
Who drives it: the Training screen; `view.ranks_layout` fits the columns into a width.
"""

from dataclasses import dataclass
from enum import StrEnum

from flodl_console.view.tones import Glyph, Phrase, Tone


class RankMark(StrEnum):
    """What sets a rank apart, gravest first."""

    MISSING = "missing"
    """It is lost."""
    LATE = "late"
    """It waits, or is silent, for longer than is usual."""
    SLOW = "slow"
    """Its batches take at least twice its own earlier time."""
    THROTTLED = "throttled"
    """It is slowed on purpose or by its device."""
    AWAITED = "awaited"
    """The others are done with their window and wait for it."""
    NONE = "none"


class ColumnKey(StrEnum):
    """The columns of the rank table."""

    MARK = "mark"
    RANK = "rank"
    HOST = "host"
    DEVICE = "device"
    STATE = "state"
    BATCHES = "batches"
    MS_PER_BATCH = "ms_per_batch"
    SHARE = "share"
    WEIGHT = "weight"
    DIVERGENCE = "divergence"
    HEARTBEAT = "heartbeat"
    PROGRESS = "progress"
    THROUGHPUT = "throughput"
    LOSS = "loss"
    THROTTLED = "throttled"
    USE = "use"
    MEMORY = "memory"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the rank table."""

    key: ColumnKey
    title: str
    """At most `width` cells."""
    tooltip: str
    """One sentence: what it says and in which unit."""
    width: int
    """Cells that suffice for any of its texts; a column without them is left out whole."""
    priority: int
    """1 is the last one to be left out."""
    is_right: bool = False
    """Whether its texts stand at the right end."""
    is_flexible: bool = False
    """Whether it may be given more than `width`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """One rank as texts."""

    rank: int
    host: str
    """Cleaned, not cut."""
    state: str
    """The state as a word."""
    tone: Tone
    """The row's gravest tone."""
    glyph: Glyph
    """The mark of its state, or of what is wrong."""
    mark: RankMark
    is_pinned: bool
    cells: tuple[Phrase, ...]
    """One a column of `COLUMNS`, none wider than the column; flexible ones may be as long
    as they like and are cut with an ellipsis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChoice:
    """How an operator wants the table."""

    sort: ColumnKey = ColumnKey.RANK
    is_descending: bool = False
    filter_text: str = ""
    """Words that must all be in the row: host, device, state, mark, or `rank 3`."""
    pins: frozenset[int] = frozenset()
    """Ranks that stand on top whatever the order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTable:
    """The table in the order wanted."""

    ranks: tuple[int, ...]
    """Every rank that passes the filter, in order; the cursor follows a number of these."""
    rows: tuple[RankRow, ...]
    """The asked part of `ranks`."""
    first_row: int
    """Where `rows` begins in `ranks`."""
    total_ranks: int
    """Without the filter."""
    summary: str
    """`4 ranks · 3 training · 1 lost · 1 slow`, at most 78 cells."""
    tone: Tone
    empty_text: str
    """What stands in the place of rows where there are none; empty otherwise."""
