"""The join window as lines: bars, hosts, refusals, and how it is joined.

What it is: a panel and a width in, lines of at most that width out; at narrow widths
whole columns are left out, the least important first.
What it is not: any wording; `view.window` and `view.actions` have the words.
Who drives it: the Window screen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from flodl_console.renderables.bars import bar, quorum_bar
from flodl_console.renderables.wrapping import beside, line_cells, wrapped
from flodl_console.view.actions import ActionOffer
from flodl_console.view.texts import cell_width, fit, pad
from flodl_console.view.tones import Glyph, Line, Phrase, Tone
from flodl_console.view.window import Countdown, HostRow, QuorumGauge, RefusalRow, WindowPanel

LABEL_CELLS: Final = 9
MAX_BAR_CELLS: Final = 40
_GAP: Final = Phrase("  ")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostColumn:
    """One column of the roster."""

    title: str
    field: str
    """Of `HostRow`."""
    priority: int
    """1 is the last to be left out."""
    max_cells: int


HOST_COLUMNS: Final = (
    HostColumn(title="ranks", field="ranks", priority=2, max_cells=12),
    HostColumn(title="host", field="host", priority=1, max_cells=24),
    HostColumn(title="devices", field="devices", priority=3, max_cells=32),
    HostColumn(title="cards", field="gpus", priority=6, max_cells=48),
    HostColumn(title="torch", field="torch", priority=7, max_cells=24),
    HostColumn(title="nccl", field="nccl", priority=8, max_cells=12),
    HostColumn(title="address", field="address", priority=5, max_cells=45),
    HostColumn(title="joined", field="joined", priority=4, max_cells=16),
)


def window_lines(panel: WindowPanel, *, start: ActionOffer, width: int) -> tuple[Line, ...]:
    """Return the whole window, top down.

    Args:
        panel: the window.
        start: whether a start would be accepted.
        width: cells of the lines, at least 40.
    """
    return tuple(_all_lines(panel, start, width))


def _all_lines(panel: WindowPanel, start: ActionOffer, width: int) -> Iterator[Line]:
    head = (
        Phrase(f"{panel.phase_glyph} {panel.phase}", panel.phase_tone),
        Phrase(f"  {panel.start_mode}" if panel.start_mode else "", Tone.DIM),
    )
    yield head
    for text in wrapped(panel.headline, width):
        yield (Phrase(text),)
    yield ()
    yield from _quorum(panel.quorum, width)
    for countdown in (panel.window, panel.cap):
        yield from _countdown(countdown, width)
    yield ()
    yield from start_lines(start, width)
    yield from _join_lines(panel, width)
    yield ()
    yield from roster_lines(panel, width=width)


def roster_lines(panel: WindowPanel, *, width: int) -> tuple[Line, ...]:
    """Return who is in, who is missing and who was turned away."""
    return (*_host_lines(panel, width), *_refusal_lines(panel, width))


def start_lines(start: ActionOffer, width: int) -> Iterator[Line]:
    """Yield the start key with what follows, or why it would be refused."""
    label = Phrase(pad("start", LABEL_CELLS), Tone.DIM)
    if start.is_enabled:
        key = Phrase("s  ", Tone.ACCENT)
        yield from beside((label, key), start.what_follows, width, tone=Tone.OK)
    else:
        yield from beside(
            (label, Phrase(f"{Glyph.BAD}  ", Tone.WARN)), start.reason, width, tone=Tone.WARN
        )


def _quorum(gauge: QuorumGauge, width: int) -> Iterator[Line]:
    drawn = quorum_bar(gauge, min(MAX_BAR_CELLS, width - LABEL_CELLS))
    label = Phrase(pad("ranks", LABEL_CELLS), Tone.DIM)
    if LABEL_CELLS + line_cells(drawn) + 2 + cell_width(gauge.text) <= width:
        yield (label, *drawn, _GAP, Phrase(gauge.text, gauge.tone))
    else:
        yield (label, *drawn)
        yield (Phrase(" " * LABEL_CELLS), Phrase(fit(gauge.text, width - LABEL_CELLS), gauge.tone))


def _countdown(countdown: Countdown, width: int) -> Iterator[Line]:
    if not countdown.text:
        return
    label = Phrase(pad(countdown.label, LABEL_CELLS), Tone.DIM)
    room = width - LABEL_CELLS
    line: list[Phrase] = [label]
    if countdown.fraction_left is not None:
        cells = min(MAX_BAR_CELLS, room - 2 - cell_width(countdown.text))
        if cells >= 8:
            line += [Phrase(bar(countdown.fraction_left, cells), countdown.tone), _GAP]
    line.append(Phrase(fit(countdown.text, width - line_cells(tuple(line))), countdown.tone))
    left = width - line_cells(tuple(line)) - 2
    if countdown.outcome and cell_width(countdown.outcome) <= left:
        yield (*line, _GAP, Phrase(countdown.outcome, Tone.DIM))
        return
    yield tuple(line)
    for text in wrapped(countdown.outcome, room):
        yield (Phrase(" " * LABEL_CELLS), Phrase(text, Tone.DIM))


def _join_lines(panel: WindowPanel, width: int) -> Iterator[Line]:
    if not panel.join_line:
        return
    label = Phrase(pad("join", LABEL_CELLS), Tone.DIM)
    yield from beside((label,), panel.join_line, width, tone=Tone.ACCENT)
    for text in wrapped(panel.join_hint, width - LABEL_CELLS):
        yield (Phrase(" " * LABEL_CELLS), Phrase(text, Tone.DIM))


def _host_lines(panel: WindowPanel, width: int) -> Iterator[Line]:
    if panel.hosts:
        columns = _columns(panel.hosts, width)
        titles = "  ".join(pad(column.title, cells) for column, cells in columns)
        yield (Phrase(f"  {titles}", Tone.DIM),)
        for row in panel.hosts:
            cells = "  ".join(pad(_field(row, column), size) for column, size in columns)
            yield (Phrase(f"{row.glyph} ", row.tone), Phrase(cells))
    else:
        yield (Phrase("  no host has joined yet", Tone.DIM),)
    if panel.expected_text:
        for text in wrapped(panel.expected_text, width - 2):
            yield (Phrase(f"{Glyph.WAITING} {text}", Tone.WARN),)


def _refusal_lines(panel: WindowPanel, width: int) -> Iterator[Line]:
    if not panel.refusals_text:
        return
    yield ()
    yield (Phrase(f"{Glyph.BAD} {fit(panel.refusals_text, width - 2)}", Tone.BAD),)
    for row in panel.refusals:
        yield from _refusal(row, width)


def _refusal(row: RefusalRow, width: int) -> Iterator[Line]:
    who = f"  {row.when}  {row.host}  {row.address}"
    yield (Phrase(fit(who, width)),)
    for text in wrapped(row.reason, width - 4):
        yield (Phrase(f"    {text}", Tone.WARN),)
    for number, text in enumerate(wrapped(row.fix, width - 9)):
        yield (Phrase("    fix: " if number == 0 else " " * 9, Tone.DIM), Phrase(text))


def _columns(rows: tuple[HostRow, ...], width: int) -> list[tuple[HostColumn, int]]:
    """Return the columns that fit with their widths, in the order in which they stand."""
    wanted = {
        column.field: min(
            column.max_cells,
            max(cell_width(column.title), *(cell_width(_field(row, column)) for row in rows)),
        )
        for column in HOST_COLUMNS
        if any(_field(row, column) for row in rows)
    }
    kept: set[str] = set()
    left = width - 2
    for column in sorted(HOST_COLUMNS, key=lambda column: column.priority):
        need = wanted.get(column.field, 0) + (2 if kept else 0)
        if column.field in wanted and need <= left:
            kept.add(column.field)
            left -= need
    return [(column, wanted[column.field]) for column in HOST_COLUMNS if column.field in kept]


def _field(row: HostRow, column: HostColumn) -> str:
    return str(getattr(row, column.field))
