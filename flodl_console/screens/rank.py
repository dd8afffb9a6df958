"""The Rank screen: all that is known of one rank, and how it went.

What it is: its signals, facts and events in one column that scrolls, plots beside it
where there is room.
What it is not: the choice of the rank; other screens post `RankChosen`.
Who drives it: the app.
"""

from typing import Final

from textual import events, getters
from textual.app import ComposeResult
from textual.containers import Horizontal

from flodl_console.actions import Scope
from flodl_console.messages import RankChosen
from flodl_console.registry import bindings_in
from flodl_console.renderables.rank_lines import rank_lines
from flodl_console.screens.console_screen import ConsoleScreen
from flodl_console.view.model import ConsoleView
from flodl_console.view.rank_detail import RankDetail, rank_detail
from flodl_console.view.trend_plots import trend_plot
from flodl_console.widgets.phrase_lines import PhraseLines
from flodl_console.widgets.plot_panel import PlotPanel
from flodl_console.widgets.redrawing import Redrawing
from flodl_console.widgets.scroll_pane import ScrollPane

TRENDS: Final = 4
MARGIN_CELLS: Final = 3
"""Left and right of the lines, the scroll bar included."""

PLOTS_FROM_CELLS: Final = 110
PLOTS_FROM_LINES: Final = 28
TWO_COLUMNS_FROM_CELLS: Final = 170
REDRAWN_EVERY_S: Final = 4.0


class RankScreen(ConsoleScreen):
    """One rank."""

    SCOPE = Scope.RANK
    BINDINGS = bindings_in(Scope.RANK)

    CSS = """
    #rank-facts { padding: 0 1; }
    #rank-plots { layout: grid; grid-size: 1; grid-gutter: 1 2; padding: 0 1; display: none; }
    RankScreen.-plots #rank-facts { width: 62; }
    RankScreen.-plots #rank-plots { display: block; width: 1fr; }
    RankScreen.-two #rank-facts { width: 76; }
    RankScreen.-two #rank-plots { grid-size: 2; }
    """

    pane = getters.query_one("#rank-facts", ScrollPane)
    board = getters.query_one("#rank-board", PhraseLines)

    def __init__(self) -> None:
        """Begin with no rank chosen."""
        super().__init__()
        self._drawn: tuple[int, bool] | None = None
        """The rank whose plots are there, and whether it has any."""
        self._redrawing = Redrawing()

    def compose_content(self) -> ComposeResult:
        """Yield the column of facts and the plots."""
        with Horizontal():
            with ScrollPane(id="rank-facts"):
                yield PhraseLines(id="rank-board")
            with Horizontal(id="rank-plots"):
                for _ in range(TRENDS):
                    yield PlotPanel()

    @property
    def chosen_rank(self) -> int | None:
        """The rank that is shown: the chosen one, else the lowest."""
        if self.rank is not None:
            return self.rank
        document = self.view.document
        ranks = () if document is None else document.ranks
        return min((row.rank for row in ranks), default=None)

    @property
    def chosen_host(self) -> str | None:
        """The host of that rank."""
        document = self.view.document
        ranks = () if document is None else document.ranks
        return next((row.host for row in ranks if row.rank == self.chosen_rank), None)

    def show_view(self, view: ConsoleView) -> None:
        """Draw the rank as it is now."""
        has_plots = self._has_plots
        self.set_class(has_plots, "-plots")
        self.set_class(has_plots and self.size.width >= TWO_COLUMNS_FROM_CELLS, "-two")
        detail = rank_detail(view, self.chosen_rank or 0)
        room = self.pane.size.width if has_plots else self.size.width - MARGIN_CELLS
        self.board.lines = rank_lines(detail, width=max(40, room), has_plots=has_plots)
        if has_plots:
            self._show_plots(detail)

    def watch_rank(self) -> None:
        """Draw another rank, from its top."""
        if self.is_mounted:
            self.pane.scroll_home(animate=False, immediate=True)
            self.show_view(self.view)

    def text_to_copy(self) -> str:
        """Return what is said of the rank, line by line."""
        return "\n".join(
            "".join(phrase.text for phrase in line).rstrip() for line in self.board.lines
        )

    def on_resize(self, event: events.Resize) -> None:
        """Draw anew for another width."""
        del event
        self.show_view(self.view)

    def action_go(self, step: int) -> None:
        """Show the rank before or after."""
        detail = rank_detail(self.view, self.chosen_rank or 0)
        other = detail.next_rank if step > 0 else detail.previous_rank
        if other is None:
            self.notice("there is no rank " + ("above" if step > 0 else "below") + " this one")
        else:
            self.post_message(RankChosen(other))

    def action_scroll_lines(self, lines: int) -> None:
        """Scroll by lines."""
        self.pane.scroll_lines(lines)

    @property
    def _has_plots(self) -> bool:
        return self.size.width >= PLOTS_FROM_CELLS and self.size.height >= PLOTS_FROM_LINES

    def _show_plots(self, detail: RankDetail) -> None:
        """Draw the past, seldom: the newest values stand in the facts."""
        wanted = (detail.rank, bool(detail.trends))
        is_due = self._redrawing.is_due(self.view, pause_s=REDRAWN_EVERY_S)
        if not is_due and wanted == self._drawn:
            return
        self._drawn = wanted
        self._redrawing.note(self.view)
        trends = [*detail.trends, *[None] * TRENDS]
        for hue, (panel, trend) in enumerate(zip(self.query(PlotPanel), trends, strict=False)):
            panel.plot = None if trend is None else trend_plot(trend, self.view.windows, hue=hue)
