"""The rank table: every rank, what it does, who is slow, late or gone.

What it is: columns with their room, and rows as texts in the order wanted.
What it is not: a widget; which rows are in sight and where the cursor stands is not known here.
Who drives it: the Training screen; `view.ranks_layout` fits the columns into a width.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from flodl_console.view import formats
from flodl_console.view.marks import MARK_LOOKS, Marked, RankMark, mark_ranks
from flodl_console.view.model import ConsoleView
from flodl_console.view.rank_cells import look_of, memory_of, rank_cells, use_of
from flodl_console.view.texts import clean, listed, says
from flodl_console.view.tones import Glyph, Phrase, Tone, gravest
from flodl_core.ids import RankPhase
from flodl_core.telemetry.state import RankState


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


_TEXTS_OF_COLUMNS: Final[Mapping[ColumnKey, tuple[str, str]]] = {
    ColumnKey.MARK: ("", "What sets the rank apart, else its state, as a mark."),
    ColumnKey.RANK: ("rank", "Number of the rank in the world."),
    ColumnKey.HOST: ("host", "Label of its host."),
    ColumnKey.DEVICE: ("device", "The device it trains on."),
    ColumnKey.STATE: ("state", "What it is doing, as the run knows it."),
    ColumnKey.BATCHES: ("batches", "Batches done / planned in the window under way."),
    ColumnKey.MS_PER_BATCH: ("ms/batch", "Mean time of a batch in milliseconds."),
    ColumnKey.SHARE: ("share", "Its part of all trained samples."),
    ColumnKey.WEIGHT: ("weight", "Its part in the last committed average."),
    ColumnKey.DIVERGENCE: ("divergence", "How far it was from the last average, relative to it."),
    ColumnKey.HEARTBEAT: ("heartbeat", "Seconds since it was heard / until it is called lost."),
    ColumnKey.PROGRESS: ("progress", "Seconds in its batch / until it is evicted."),
    ColumnKey.THROUGHPUT: ("samples/s", "Its trained samples a second."),
    ColumnKey.LOSS: ("loss", "Its own loss."),
    ColumnKey.THROTTLED: ("throttled", "Whether it is held back because counts shrank under it."),
    ColumnKey.USE: ("use", "How busy its device is; the CPU where no device tells."),
    ColumnKey.MEMORY: ("memory", "Device memory used / there; RAM where no device tells."),
    ColumnKey.NOTE: ("note", "What sets it apart, and why."),
}

_ROOM_OF_COLUMNS: Final[Mapping[ColumnKey, tuple[int, int]]] = {
    ColumnKey.MARK: (1, 1),
    ColumnKey.RANK: (5, 2),
    ColumnKey.HOST: (8, 4),
    ColumnKey.DEVICE: (7, 9),
    ColumnKey.STATE: (8, 3),
    ColumnKey.BATCHES: (9, 5),
    ColumnKey.MS_PER_BATCH: (8, 7),
    ColumnKey.SHARE: (7, 10),
    ColumnKey.WEIGHT: (7, 11),
    ColumnKey.DIVERGENCE: (10, 13),
    ColumnKey.HEARTBEAT: (10, 8),
    ColumnKey.PROGRESS: (10, 12),
    ColumnKey.THROUGHPUT: (9, 15),
    ColumnKey.LOSS: (9, 14),
    ColumnKey.THROTTLED: (9, 18),
    ColumnKey.USE: (6, 16),
    ColumnKey.MEMORY: (12, 17),
    ColumnKey.NOTE: (14, 6),
}
"""Width in cells and priority of each column."""

_LEFT: Final = (
    ColumnKey.MARK,
    ColumnKey.HOST,
    ColumnKey.DEVICE,
    ColumnKey.STATE,
    ColumnKey.THROTTLED,
    ColumnKey.NOTE,
)

COLUMNS: Final = tuple(
    Column(
        key=key,
        title=_TEXTS_OF_COLUMNS[key][0],
        tooltip=_TEXTS_OF_COLUMNS[key][1],
        width=_ROOM_OF_COLUMNS[key][0],
        priority=_ROOM_OF_COLUMNS[key][1],
        is_right=key not in _LEFT,
        is_flexible=key in (ColumnKey.HOST, ColumnKey.NOTE),
    )
    for key in ColumnKey
)
"""Every column, in the order in which they stand."""


def rank_table(
    view: ConsoleView,
    choice: RankChoice,
    *,
    first_row: int = 0,
    max_rows: int | None = None,
) -> RankTable:
    """Return the table in the order wanted, with the rows of a part of it.

    Args:
        view: of this moment.
        choice: sort, filter and pins.
        first_row: where the wanted part begins; clamped.
        max_rows: how many rows are made; all if None.
    """
    document = view.document
    ranks = document.ranks if document is not None else ()
    marks = mark_ranks(view)
    anchor = document.elche.anchor_rank if document is not None and document.elche else None
    found = _ordered([rank for rank in ranks if _passes(rank, marks, choice)], marks, choice)
    first = max(0, min(first_row, len(found)))
    last = len(found) if max_rows is None else first + max(0, max_rows)
    summary, tone = _summary(view, marks)
    return RankTable(
        ranks=tuple(rank.rank for rank in found),
        rows=tuple(
            _row(rank, marks[rank.rank], choice=choice, is_anchor=rank.rank == anchor)
            for rank in found[first:last]
        ),
        first_row=first,
        total_ranks=len(ranks),
        summary=summary,
        tone=tone,
        empty_text=_empty(view, choice) if not found else "",
    )


def _passes(rank: RankState, marks: Mapping[int, Marked], choice: RankChoice) -> bool:
    words = choice.filter_text.casefold().split()
    if not words:
        return True
    mark = marks[rank.rank].mark
    told = "" if mark is RankMark.NONE else mark.value
    text = f"{rank.host} {rank.device} {rank.gpu or ''} {rank.state.value} {told}".casefold()
    return all(
        word == str(rank.rank) if word.isdecimal() else word == "rank" or word in text
        for word in words
    )


_SortKey = tuple[float, str]
_MARK_ORDER: Final = {mark: place for place, mark in enumerate(RankMark)}


def _figure(value: float | None) -> _SortKey | None:
    shown = formats.finite(value)
    return None if shown is None else (shown, "")


_SORTERS: Final[Mapping[ColumnKey, Callable[[RankState, RankMark], _SortKey | None]]] = {
    ColumnKey.MARK: lambda _, mark: (_MARK_ORDER[mark], ""),
    ColumnKey.RANK: lambda rank, _: (rank.rank, ""),
    ColumnKey.HOST: lambda rank, _: (0, rank.host),
    ColumnKey.DEVICE: lambda rank, _: (0, rank.device),
    ColumnKey.STATE: lambda rank, _: (0, rank.state.value),
    ColumnKey.BATCHES: lambda rank, _: _figure(rank.steps_in_window),
    ColumnKey.MS_PER_BATCH: lambda rank, _: _figure(rank.ms_per_batch),
    ColumnKey.SHARE: lambda rank, _: _figure(rank.share),
    ColumnKey.WEIGHT: lambda rank, _: _figure(rank.weight),
    ColumnKey.DIVERGENCE: lambda rank, _: _figure(rank.divergence),
    ColumnKey.HEARTBEAT: lambda rank, _: _figure(rank.heartbeat_age_s),
    ColumnKey.PROGRESS: lambda rank, _: _figure(rank.progress_age_s),
    ColumnKey.THROUGHPUT: lambda rank, _: _figure(rank.throughput),
    ColumnKey.LOSS: lambda rank, _: _figure(rank.loss),
    ColumnKey.THROTTLED: lambda rank, _: (not rank.throttled, ""),
    ColumnKey.USE: lambda rank, _: _figure(use_of(rank)),
    ColumnKey.MEMORY: lambda rank, _: _figure(memory_of(rank)[0]),
    ColumnKey.NOTE: lambda _, mark: (_MARK_ORDER[mark], ""),
}


def _ordered(
    ranks: list[RankState], marks: Mapping[int, Marked], choice: RankChoice
) -> list[RankState]:
    """Sort; unknown values stand last in either direction, ties by number, pins on top."""
    sorter = _SORTERS[choice.sort]
    known: list[tuple[_SortKey, RankState]] = []
    unknown: list[RankState] = []
    for rank in sorted(ranks, key=lambda one: one.rank):
        key = sorter(rank, marks[rank.rank].mark)
        if key is None:
            unknown.append(rank)
        else:
            known.append((key, rank))
    known.sort(key=lambda pair: pair[0], reverse=choice.is_descending)
    ordered = [*(rank for _, rank in known), *unknown]
    return sorted(ordered, key=lambda rank: rank.rank not in choice.pins)


def _row(rank: RankState, marked: Marked, *, choice: RankChoice, is_anchor: bool) -> RankRow:
    glyph, tone = look_of(rank, marked.mark)
    cells = rank_cells(rank, marked, is_anchor=is_anchor)
    return RankRow(
        rank=rank.rank,
        host=clean(rank.host),
        state=rank.state.value,
        tone=tone,
        glyph=glyph,
        mark=marked.mark,
        is_pinned=rank.rank in choice.pins,
        cells=tuple(cells[column.key.value] for column in COLUMNS),
    )


def _summary(view: ConsoleView, marks: Mapping[int, Marked]) -> tuple[str, Tone]:
    document = view.document
    if document is None or not document.ranks:
        return "", Tone.DIM
    states = Counter(rank.state for rank in document.ranks if rank.state is not RankPhase.LOST)
    told = Counter(marked.mark for marked in marks.values())
    parts = [formats.plural(len(document.ranks), "rank")]
    parts += [
        f"{told[mark]} {word}"
        for mark, word in (
            (RankMark.MISSING, "lost"),
            (RankMark.LATE, "late"),
            (RankMark.SLOW, "slow"),
        )
        if told[mark]
    ]
    parts += [f"{number} {state.value}" for state, number in states.most_common()]
    tone = gravest(*(MARK_LOOKS[mark][1] for mark in told))
    return listed(parts, 78, separator=" · "), tone


def _empty(view: ConsoleView, choice: RankChoice) -> str:
    if view.document is None:
        return "no document has come yet"
    if view.document.ranks:
        return f"no rank matches {says(choice.filter_text, 40)!r}"
    return "no ranks yet: they are numbered when the window closes"
