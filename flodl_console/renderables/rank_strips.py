"""Rows of the rank table as strips.

What it is: the head and one row in an exact width, with as few segments as tones allow.
What it is not: which columns there are and how wide; `view.ranks_layout` places those.
Who drives it: `widgets.rank_table`.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from textual.strip import Strip

from flodl_console.renderables.phrase_strip import (
    CHOSEN,
    CURSOR_CELLS,
    StyleOf,
    phrase_strip,
)
from flodl_console.view.ranks import RankChoice, RankRow
from flodl_console.view.ranks_layout import GAP_CELLS, PlacedColumn
from flodl_console.view.texts import fit, pad
from flodl_console.view.tones import Phrase, Tone

_NOT_CHOSEN: Final = Phrase(" " * CURSOR_CELLS, Tone.DIM)
_GAP: Final = " " * GAP_CELLS


def head_strip(
    columns: Sequence[PlacedColumn], choice: RankChoice, *, width: int, style_of: StyleOf
) -> Strip:
    """Return the titles; the column that rows are sorted by is marked with an arrow."""
    line = [_NOT_CHOSEN]
    for placed in columns:
        title, tone = placed.column.title, Tone.DIM
        if placed.column.key is choice.sort:
            arrow = "↓" if choice.is_descending else "↑"
            title, tone = fit(title, placed.width - 1) + arrow, Tone.ACCENT
        line.append(Phrase(_in_place(title, placed), tone))
    return phrase_strip(tuple(line), width=width, style_of=style_of)


def row_strip(
    row: RankRow,
    columns: Sequence[PlacedColumn],
    *,
    width: int,
    is_chosen: bool,
    style_of: StyleOf,
) -> Strip:
    """Return one rank's row; the chosen one has a mark at its left end."""
    line = [Phrase(CHOSEN, Tone.ACCENT) if is_chosen else _NOT_CHOSEN]
    for placed in columns:
        cell = row.cells[placed.index]
        line.append(Phrase(_in_place(cell.text, placed), cell.tone))
    return phrase_strip(tuple(line), width=width, style_of=style_of)


def notice_strip(text: str, *, width: int, style_of: StyleOf) -> Strip:
    """Return a sentence in the place of a row."""
    return phrase_strip((_NOT_CHOSEN, Phrase(text, Tone.DIM)), width=width, style_of=style_of)


def changed_span(
    old: RankRow, new: RankRow, columns: Sequence[PlacedColumn]
) -> tuple[int, int] | None:
    """Return the first cell and the number of cells in which two rows differ, if they do."""
    changed = [placed for placed in columns if old.cells[placed.index] != new.cells[placed.index]]
    if not changed:
        return None
    first = CURSOR_CELLS + changed[0].x
    return first, CURSOR_CELLS + changed[-1].x + changed[-1].width - first


@lru_cache(maxsize=8_192)
def _padded(text: str, width: int, *, is_right: bool) -> str:
    return pad(text, width, is_right=is_right) + _GAP


def _in_place(text: str, placed: PlacedColumn) -> str:
    return _padded(text, placed.width, is_right=placed.column.is_right)
