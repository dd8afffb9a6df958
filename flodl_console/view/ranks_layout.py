"""Which columns of the rank table stand where at a width.

What it is: a pure layout; columns are left out whole, the least important first.
What it is not: a drawing.
Who drives it: the rank table's widget, at each change of width.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from flodl_console.view.ranks import COLUMNS, Column, ColumnKey

GAP_CELLS: Final = 1
MAX_HOST_CELLS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedColumn:
    """A column with its place on a line."""

    column: Column
    index: int
    """Of its text in `RankRow.cells`."""
    x: int
    """First cell, from 0."""
    width: int
    """Cells, at least the column's own width."""


def place_columns(
    width: int, *, host_cells: int = MAX_HOST_CELLS, hidden: Set[ColumnKey] = frozenset()
) -> tuple[PlacedColumn, ...]:
    """Return the columns that fit into a width, in their order.

    What is left over goes to the host as far as it needs it, then to the note.

    Args:
        width: cells.
        host_cells: of the longest host; it is given at most MAX_HOST_CELLS.
        hidden: columns that are not wanted.
    """
    chosen: list[int] = []
    used = -GAP_CELLS
    for index in sorted(range(len(COLUMNS)), key=lambda one: COLUMNS[one].priority):
        column = COLUMNS[index]
        if column.key in hidden:
            continue
        if used + GAP_CELLS + column.width > width:
            break
        used += GAP_CELLS + column.width
        chosen.append(index)
    wanted = min(host_cells, MAX_HOST_CELLS)
    return _placed(sorted(chosen), spare=max(0, width - used), host_cells=wanted)


def _placed(chosen: list[int], *, spare: int, host_cells: int) -> tuple[PlacedColumn, ...]:
    widths = {index: COLUMNS[index].width for index in chosen}
    keys = {COLUMNS[index].key: index for index in chosen}
    host, note = keys.get(ColumnKey.HOST), keys.get(ColumnKey.NOTE)
    if host is not None:
        more = min(spare, max(0, host_cells - widths[host]))
        if note is not None:
            more = min(more, spare // 2)
        widths[host] += more
        spare -= more
    if note is not None:
        widths[note] += spare
    placed: list[PlacedColumn] = []
    x = 0
    for index in chosen:
        placed.append(PlacedColumn(column=COLUMNS[index], index=index, x=x, width=widths[index]))
        x += widths[index] + GAP_CELLS
    return tuple(placed)
