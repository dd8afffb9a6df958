"""The Training screen: what holds the run up, how far it is, every rank, every average.

What it is: the verdict, the header, the rank table, averaging and cadence, and plots,
in whatever room there is.
What it is not: any decision about what they say; `flodl_console.view` has the words.
Who drives it: the app, while a run trains and wherever a person asks for it.
"""

from dataclasses import replace
from typing import Final

from textual import events, getters, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Input

from flodl_console.actions import Scope
from flodl_console.messages import RankChosen
from flodl_console.registry import bindings_in
from flodl_console.renderables.end_lines import end_lines
from flodl_console.renderables.fact_lines import cycle_lines, elche_lines
from flodl_console.renderables.verdict_lines import verdict_lines
from flodl_console.screens.console_screen import ConsoleScreen
from flodl_console.view.cycle import cycle_panel
from flodl_console.view.elche import elche_panel
from flodl_console.view.ending import end_panel
from flodl_console.view.header import header_lines, header_panel
from flodl_console.view.model import ConsoleView
from flodl_console.view.plots import PlotKind, PlotZoom
from flodl_console.view.ranks import RankChoice, rank_table
from flodl_console.view.ranks_choice import next_sort, pinned, reversed_sort
from flodl_console.view.texts import cell_width, clean
from flodl_console.view.training_plan import FACTS_CELLS, TrainingPlan, training_plan
from flodl_console.view.waits import run_verdict
from flodl_console.widgets.phrase_lines import PhraseLines
from flodl_console.widgets.plot_grid import PlotGrid
from flodl_console.widgets.rank_table import RankTableView

MARGIN_CELLS: Final = 2
"""Left and right of the lines."""

FRAME_LINES: Final = 2
"""The first line and the keys."""

MAX_ROWS: Final = 1_000_000
"""More than any table has: a step of this many ends at the first or last row."""

ZOOM_WORDS: Final = {
    PlotZoom.ALL: "all of the run",
    PlotZoom.HOURS: "its last 3 hours",
    PlotZoom.HOUR: "its last hour",
    PlotZoom.MINUTES: "its last 10 minutes",
    PlotZoom.MINUTE: "its last minute",
}

PLOT_ORDER: Final = (
    PlotKind.LOSS,
    PlotKind.COUNTS,
    PlotKind.DIVERGENCE,
    PlotKind.WINDOW,
    PlotKind.SPEED,
)


class TrainingScreen(ConsoleScreen):
    """Every rank, the cycle under way, and how the training goes."""

    SCOPE = Scope.TRAINING
    BINDINGS = bindings_in(Scope.TRAINING)

    CSS = """
    #training-verdict, #training-header { padding: 0 1; }
    #rank-filter { height: 1; padding: 0 1; display: none; }
    #training-below { height: 1fr; layout: vertical; }
    #training-facts { height: auto; padding: 0 1; }
    #training-cycle, #training-elche { height: 1; }
    TrainingScreen.-over #training-facts { height: 1fr; }
    TrainingScreen.-over #training-cycle { height: auto; }
    TrainingScreen.-large #training-below { layout: horizontal; padding: 1 0 0 0; }
    TrainingScreen.-large #training-facts { height: 1fr; }
    TrainingScreen.-large #training-cycle { height: auto; padding: 0 0 1 0; }
    TrainingScreen.-large #training-elche { height: 1fr; }
    """

    verdict = getters.query_one("#training-verdict", PhraseLines)
    header = getters.query_one("#training-header", PhraseLines)
    filter_field = getters.query_one("#rank-filter", Input)
    table = getters.query_one(RankTableView)
    facts = getters.query_one("#training-facts", Container)
    cycle = getters.query_one("#training-cycle", PhraseLines)
    elche = getters.query_one("#training-elche", PhraseLines)
    plots = getters.query_one(PlotGrid)

    def __init__(self) -> None:
        """Begin with the ranks in their own order and all of the past."""
        super().__init__()
        self._choice = RankChoice()
        self._plan: TrainingPlan | None = None

    def compose_content(self) -> ComposeResult:
        """Yield the parts from top to bottom."""
        yield PhraseLines(id="training-verdict")
        yield PhraseLines(id="training-header")
        yield Input(id="rank-filter", compact=True, placeholder="host, device, state, rank 3, slow")
        yield RankTableView()
        with Container(id="training-below"):
            with Container(id="training-facts"):
                yield PhraseLines(id="training-cycle")
                yield PhraseLines(id="training-elche")
            yield PlotGrid(PLOT_ORDER)

    @property
    def chosen_rank(self) -> int | None:
        """The rank under the cursor."""
        return self.table.cursor_rank

    @property
    def chosen_host(self) -> str | None:
        """The host of that rank."""
        document = self.view.document
        ranks = () if document is None else document.ranks
        return next((row.host for row in ranks if row.rank == self.chosen_rank), None)

    def text_to_copy(self) -> str:
        """Return the chosen rank's row as one line."""
        table = self.table.table
        rows = () if table is None else table.rows
        row = next((one for one in rows if one.rank == self.chosen_rank), None)
        if row is None:
            return ""
        return "  ".join(cell.text for cell in row.cells if cell.text.strip())

    def field_left(self) -> None:
        """Drop the filter."""
        self.filter_field.value = ""
        self._show_filter(is_shown=False)

    def show_view(self, view: ConsoleView) -> None:
        """Give each part its slice."""
        width = self.size.width - MARGIN_CELLS
        if width < 1:
            return
        self.verdict.lines = verdict_lines(run_verdict(view), width=width)
        plan = self._arrange(view)
        header = header_panel(view)
        self.header.lines = (
            ()
            if header is None
            else (header.title, *header_lines(header, width, max_lines=plan.header_lines - 1))
        )
        self._show_ranks()
        self._show_facts(plan, width)
        self.plots.take(view)

    @on(RankTableView.RowsWanted)
    def take_rows_wanted(self) -> None:
        """Make the rows that are in sight now."""
        self._show_ranks()

    @on(Input.Changed, "#rank-filter")
    def take_filter(self, event: Input.Changed) -> None:
        """Filter while one types."""
        self._choose(replace(self._choice, filter_text=event.value))

    @on(Input.Submitted, "#rank-filter")
    def end_typing(self) -> None:
        """Go back to the table; the filter stays."""
        self.set_focus(None)
        self._show_filter(is_shown=bool(self.filter_field.value))

    def on_resize(self, event: events.Resize) -> None:
        """Divide the room anew."""
        del event
        self.show_view(self.view)

    def action_move(self, rows: int) -> None:
        """Choose another rank."""
        self.table.move(rows)

    def action_move_page(self, pages: int) -> None:
        """Choose a rank a page away."""
        self.table.move(pages * self.table.rows_in_sight)

    def action_move_to_end(self, side: int) -> None:
        """Choose the first or the last rank."""
        self.table.move(side * MAX_ROWS)

    def action_open_rank(self) -> None:
        """Show the chosen rank in full."""
        if self.chosen_rank is None:
            self.notice("no rank is chosen", is_problem=True)
        else:
            self.post_message(RankChosen(self.chosen_rank))

    def action_choose_trouble(self) -> None:
        """Choose the rank that the verdict is about."""
        rank = run_verdict(self.view).rank
        if rank is None:
            self.notice("the first line is about no single rank")
        elif not self.table.move_to(rank):
            self.notice(f"rank {rank} does not pass the filter", is_problem=True)

    def action_next_sort(self) -> None:
        """Sort by the next column in sight."""
        self._choose(next_sort(self._choice, self.table.columns_shown))

    def action_reverse_sort(self) -> None:
        """Turn the order around."""
        self._choose(reversed_sort(self._choice))

    def action_filter(self) -> None:
        """Type words that ranks must have."""
        self._show_filter(is_shown=True)
        self.filter_field.focus()

    def action_pin(self) -> None:
        """Pin the chosen rank, or let it go."""
        if self.chosen_rank is not None:
            self._choose(pinned(self._choice, self.chosen_rank))

    def action_zoom(self) -> None:
        """Draw a shorter part of the past, then all of it again."""
        self.notice(f"plots show {ZOOM_WORDS[self.plots.zoom_in()]}")

    def action_next_plot(self) -> None:
        """Draw the next quantity first."""
        self.plots.turn()

    def _show_filter(self, *, is_shown: bool) -> None:
        """Give the field a line, or take it away."""
        self.filter_field.display = is_shown
        self.show_view(self.view)

    def _choose(self, choice: RankChoice) -> None:
        self._choice = choice
        self._show_ranks()

    def _show_ranks(self) -> None:
        document = self.view.document
        hosts = {rank.host for rank in document.ranks} if document is not None else set()
        self.table.host_cells = max((cell_width(clean(host)) for host in hosts), default=0)
        self.table.choice = self._choice
        self.table.table = rank_table(
            self.view,
            self._choice,
            first_row=self.table.first_row,
            max_rows=self.table.rows_in_sight,
        )

    def _show_facts(self, plan: TrainingPlan, width: int) -> None:
        end = end_panel(self.view)
        room = FACTS_CELLS - MARGIN_CELLS if plan.is_large else width
        if end.is_over:
            self.cycle.lines = end_lines(end, width=room, height=plan.below_lines)
            self.elche.lines = ()
            return
        cycle, elche = cycle_panel(self.view), elche_panel(self.view)
        if not plan.is_large:
            self.cycle.lines, self.elche.lines = (cycle.summary,), (elche.summary,)
            return
        self.cycle.lines = cycle_lines(cycle, width=room)
        left = plan.below_lines - len(self.cycle.lines) - 1
        self.elche.lines = elche_lines(elche, width=room, height=left)

    def _arrange(self, view: ConsoleView) -> TrainingPlan:
        """Give each part its room; nothing is laid out anew while that stays the same."""
        document = view.document
        ranks = 0 if document is None else len(document.ranks)
        over = end_panel(view).is_over
        extra = int(self.link_line.display) + int(self.filter_field.display)
        extra += len(self.verdict.lines) - 1
        height = max(1, self.size.height - FRAME_LINES - extra)
        plan = training_plan(self.size.width, height, ranks=ranks, is_over=over)
        self.set_class(over, "-over")
        if plan != self._plan:
            self._plan = plan
            self.set_class(plan.is_large, "-large")
            self.header.styles.height = plan.header_lines
            self.table.styles.height = plan.table_lines
            self.facts.styles.width = FACTS_CELLS if plan.is_large else "1fr"
            self.plots.give_room(plan.plot_columns, plan.plot_rows)
        return plan
