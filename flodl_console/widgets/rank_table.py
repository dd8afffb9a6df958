"""The rank table: rows drawn line by line, a cursor that stays with its rank.

What it is: a line widget with its own scrolling; of a row that changed only the changed
cells are sent to the terminal.
What it is not: sorting, filtering or formatting; `view.ranks` does those, for the rows
that are in sight.
Who drives it: the Training screen sets `table` and `choice`, and answers
`RowsWanted` with a table of those rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from flodl_console.renderables.phrase_strip import CURSOR_CELLS
from flodl_console.renderables.rank_strips import (
    changed_span,
    head_strip,
    notice_strip,
    row_strip,
)
from flodl_console.themes import cursor_style, tone_style
from flodl_console.view.ranks import ColumnKey, RankChoice, RankRow, RankTable
from flodl_console.view.ranks_layout import PlacedColumn, place_columns
from flodl_console.view.row_cursor import clamped, first_in_sight, followed
from flodl_console.view.tones import Tone

_placed = lru_cache(maxsize=64)(place_columns)


class RankTableView(ScrollView, can_focus=False, inherit_bindings=False):
    """The ranks that pass the filter, in the order wanted."""

    DEFAULT_CSS = """
    RankTableView {
        height: 1fr;
        width: 1fr;
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
    }
    """

    @dataclass
    class RowsWanted(Message):
        """Other rows are in sight now."""

    table: reactive[RankTable | None] = reactive(None, repaint=False)
    choice: reactive[RankChoice] = reactive(RankChoice())
    cursor_rank: reactive[int | None] = reactive(None, repaint=False)
    host_cells: reactive[int] = reactive(0)
    """Of the longest host, whether it is in sight or not."""

    def __init__(self) -> None:
        """Begin without ranks."""
        super().__init__()
        self._cursor_row = 0
        self._behind = Style()

    @property
    def rows_in_sight(self) -> int:
        """Rows that there is room for below the head."""
        return max(1, self.size.height - 1)

    @property
    def row_cells(self) -> int:
        """Cells of a line, without the scroll bar."""
        return self.scrollable_content_region.width

    @property
    def _columns(self) -> tuple[PlacedColumn, ...]:
        return _placed(self.row_cells - CURSOR_CELLS, host_cells=self.host_cells)

    @property
    def first_row(self) -> int:
        """The row below the head, from 0."""
        return int(self.scroll_y)

    @property
    def columns_shown(self) -> tuple[ColumnKey, ...]:
        """The columns that there is room for, from left to right."""
        return tuple(placed.column.key for placed in self._columns)

    def move(self, rows: int) -> None:
        """Choose the rank so many rows below, above if negative; stops at either end."""
        self._choose_row(self._cursor_row + rows)

    def move_to(self, rank: int) -> bool:
        """Choose a rank, if it is in the table."""
        if self.table is None or rank not in self.table.ranks:
            return False
        self._choose_row(self.table.ranks.index(rank))
        return True

    def watch_table(self, old: RankTable | None, new: RankTable | None) -> None:
        """Draw what differs; keep the cursor on its rank, or on its row if that is gone."""
        if new is None:
            return
        if old is None or len(old.ranks) != len(new.ranks):
            self.virtual_size = Size(self.size.width, len(new.ranks) + 1)
        row, self.cursor_rank = followed(new.ranks, self.cursor_rank, self._cursor_row)
        if row != self._cursor_row:
            self._cursor_row = row
            self._show_cursor()
        if old is None or (old.first_row, old.empty_text) != (new.first_row, new.empty_text):
            self.refresh()
            return
        self._refresh_changes(old.rows, new.rows)

    def watch_cursor_rank(self, old: int | None, new: int | None) -> None:
        """Draw the two rows between which the mark went."""
        rows = () if self.table is None else self.table.rows
        marked = [y for y, row in enumerate(rows, 1) if row.rank in {old, new}]
        if marked:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in marked))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Ask for the rows that are in sight now; they are drawn when they come."""
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = new_value
        if round(old_value) != round(new_value):
            self.post_message(self.RowsWanted())

    def on_resize(self, event: events.Resize) -> None:
        """Ask for as many rows as there is room for."""
        del event
        self.post_message(self.RowsWanted())
        self._show_cursor()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw the lines that changed; what is behind them is looked up once for all."""
        self._behind = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Draw the head or one row."""
        row = self._row_at(y)
        if row is not None and row.rank == self.cursor_rank:
            return self._draw_row(row).apply_style(cursor_style(self.app.theme))
        strip = self._draw_notice(y) if row is None else self._draw_row(row)
        return strip.apply_style(self._behind)

    def _row_at(self, y: int) -> RankRow | None:
        rows = () if self.table is None else self.table.rows
        return rows[y - 1] if 0 < y <= len(rows) else None

    def _draw_row(self, row: RankRow) -> Strip:
        return row_strip(
            row,
            self._columns,
            width=self.row_cells,
            is_chosen=row.rank == self.cursor_rank,
            style_of=self._style_of,
        )

    def _draw_notice(self, y: int) -> Strip:
        """Draw a line that is no row: the head, or why there are no rows."""
        width, style_of = self.row_cells, self._style_of
        if y == 0:
            return head_strip(self._columns, self.choice, width=width, style_of=style_of)
        text = self.table.empty_text if self.table is not None and y == 1 else ""
        return notice_strip(text, width=width, style_of=style_of)

    def _style_of(self, tone: Tone) -> Style:
        return tone_style(self.app.theme, tone)

    def _choose_row(self, row: int) -> None:
        if self.table is not None and self.table.ranks:
            self._cursor_row = clamped(row, self.table.ranks)
            self.cursor_rank = self.table.ranks[self._cursor_row]
            self._show_cursor()

    def _show_cursor(self) -> None:
        first = first_in_sight(self.first_row, self._cursor_row, self.rows_in_sight)
        if first != self.first_row:
            self.scroll_to(y=first, animate=False, immediate=True)

    def _refresh_changes(self, old: Sequence[RankRow], new: Sequence[RankRow]) -> None:
        """Have those cells drawn again in which the rows in sight differ."""
        regions = []
        for y, (before, after) in enumerate(zip_longest(old, new), 1):
            span: tuple[int, int] | None = (0, self.size.width)
            if before is not None and after is not None and before.rank == after.rank:
                span = changed_span(before, after, self._columns)
            if span is not None:
                regions.append(Region(span[0], y, span[1], 1))
        if regions:
            self.refresh(*regions)
