"""Several plots side by side: as many of an order as there is room for, from one of them on.

What it is: a grid of plot panels, redrawn when history grew, but not with each window.
What it is not: a drawing, or the making of a plot; `view.plots` makes them.
Who drives it: screens call `give_room` when their size changes, and `take` with each view.
"""

from collections.abc import Sequence
from typing import Final

from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from flodl_console.view.model import ConsoleView
from flodl_console.view.plots import PlotKind, PlotZoom, plot, zoomed
from flodl_console.widgets.plot_panel import PlotPanel
from flodl_console.widgets.redrawing import Redrawing

MIN_REDRAW_S: Final = 4.0
MAX_REDRAW_S: Final = 10.0
"""Drawing curves is the dearest part of a screen, so it waits until a curve has grown by a
cell, within these bounds; what is newest stands in the header and in the table."""

GUTTER_CELLS: Final = 2

MANY_CURVES: Final = frozenset({PlotKind.COUNTS, PlotKind.DIVERGENCE})
"""Kinds with a curve a rank, which are given half as many points each."""


class PlotGrid(Container):
    """A grid of plots."""

    DEFAULT_CSS = """
    PlotGrid {
        layout: grid;
        grid-size: 1 1;
        grid-gutter: 1 2;
        width: 1fr;
        height: 1fr;
        padding: 0 1;
    }
    """

    def __init__(self, order: Sequence[PlotKind]) -> None:
        """Begin with the first of some plots and all of the past.

        Args:
            order: every kind once.
        """
        super().__init__()
        self._order = tuple(order)
        self._first = 0
        self._grid = (1, 1)
        self._zoom = PlotZoom.ALL
        self._view = ConsoleView()
        self._redrawing = Redrawing()
        self._pause_s = MIN_REDRAW_S

    def compose(self) -> ComposeResult:
        """Yield a panel for each place."""
        for _ in self._order:
            yield PlotPanel()

    def give_room(self, columns: int, rows: int) -> None:
        """Make room for `columns` × `rows` plots; none hides the grid."""
        self._grid = (columns, rows)
        self.display = columns * rows > 0
        self.styles.grid_size_columns = max(1, columns)
        self.styles.grid_size_rows = max(1, rows)
        for place, panel in enumerate(self.query(PlotPanel)):
            panel.display = place < columns * rows
        self._redrawing.forget()

    def take(self, view: ConsoleView) -> None:
        """Draw a view's history, if it is another one or the last drawing is old enough."""
        if self._redrawing.is_due(view, pause_s=self._pause_s):
            self._view = view
            self._draw()

    def turn(self) -> None:
        """Begin with the kind after the first one that is shown."""
        self._first = (self._first + 1) % len(self._order)
        self._draw()

    def zoom_in(self) -> PlotZoom:
        """Show a shorter part of the past, or all of it after the shortest; return which."""
        closer = zoomed(self._zoom, 1)
        self._zoom = PlotZoom.ALL if closer is self._zoom else closer
        self._draw()
        return self._zoom

    def on_resize(self, event: events.Resize) -> None:
        """Thin the curves for another width."""
        del event
        self._draw()

    def _draw(self) -> None:
        columns, rows = self._grid
        if columns * rows == 0 or not self.size:
            return
        self._redrawing.note(self._view)
        kinds = self._order[self._first :] + self._order[: self._first]
        width = max(1, self.size.width // columns - GUTTER_CELLS)
        for panel, kind in zip(self.query(PlotPanel), kinds[: columns * rows], strict=False):
            points = width // 2 if kind in MANY_CURVES else width
            panel.plot = drawn = plot(self._view, kind, width=max(1, points), zoom=self._zoom)
            cell_s = (drawn.x_high_s - drawn.x_low_s) / width
            self._pause_s = min(MAX_REDRAW_S, max(MIN_REDRAW_S, cell_s))
