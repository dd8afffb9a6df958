"""Events as lines: one a row of the list, and all that is known of the chosen one.

What it is: rows and a width in, lines out; columns that do not fit are left out whole.
What it is not: the filter or the folding; `view.events` has those.
Who drives it: the Events screen.
"""

from collections.abc import Sequence
from typing import Final

from flodl_console.renderables.wrapping import wrapped
from flodl_console.view.events import EventRow
from flodl_console.view.texts import cell_width, fit, pad
from flodl_console.view.tones import Line, Phrase, Tone

TIME_CELLS: Final = 8
AGE_CELLS: Final = 10
KIND_CELLS: Final = 9
MAX_WHERE_CELLS: Final = 32
AGE_FROM_CELLS: Final = 96
KIND_FROM_CELLS: Final = 110
MAX_DETAIL_LINES: Final = 6


def event_lines(
    rows: Sequence[EventRow], *, width: int, where_cells: int | None = None
) -> tuple[Line, ...]:
    """Return the rows of a list; the place takes as much room as its longest needs.

    Args:
        rows: of the panel.
        width: cells of a line.
        where_cells: of the longest place of the whole list; of these rows if None.
    """
    if where_cells is None:
        where_cells = max((cell_width(row.where) for row in rows), default=0)
    where_cells = min(where_cells, MAX_WHERE_CELLS, width // 3)
    return tuple(_event_line(row, width=width, where_cells=where_cells) for row in rows)


def _event_line(row: EventRow, *, width: int, where_cells: int) -> Line:
    line = [
        Phrase(f"{row.glyph} ", row.tone),
        Phrase(f"{pad(row.time, TIME_CELLS)}  ", Tone.DIM),
    ]
    if width >= AGE_FROM_CELLS:
        line.append(Phrase(f"{pad(row.age, AGE_CELLS)}  ", Tone.DIM))
    if width >= KIND_FROM_CELLS:
        line.append(Phrase(f"{pad(row.kind.value, KIND_CELLS)}  ", Tone.DIM))
    line.append(Phrase(f"{pad(row.where, where_cells)}  "))
    if row.depth:
        line.append(Phrase("└ ", Tone.DIM))
    used = sum(cell_width(phrase.text) for phrase in line)
    tail = "".join(
        f"  {part}" for part in (f"×{row.count}" if row.count > 1 else "", row.fold_text) if part
    )
    room = max(0, width - used - cell_width(tail))
    line += [Phrase(fit(row.text, room), row.tone), Phrase(tail, Tone.DIM)]
    return tuple(line)


def event_detail(row: EventRow, *, width: int) -> tuple[Line, ...]:
    """Return everything about one event, in at most MAX_DETAIL_LINES lines.

    Args:
        row: of the panel.
        width: cells of the lines.
    """
    head = f"{row.glyph} {row.severity} · {row.kind.value} · {row.where} · at {row.time}"
    if row.age:
        head += f", {row.age} into the run"
    if row.who:
        head += f" · {row.who}"
    lines: list[Line] = [(Phrase(fit(head, width), row.tone),)]
    lines += [(Phrase(f"  {text}"),) for text in wrapped(row.text, width - 2)]
    for number, text in enumerate(wrapped(row.fix, width - 7)):
        lines.append(
            (Phrase("  fix: " if number == 0 else " " * 7, Tone.DIM), Phrase(text, Tone.ACCENT))
        )
    return tuple(lines[:MAX_DETAIL_LINES])
