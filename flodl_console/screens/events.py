"""The Events screen: what happened, root causes first, the rest folded under them.

What it is: a list with a cursor that follows its event, a search, and the chosen event
in full.
What it is not: the log of the run.
Who drives it: the app.
"""

from dataclasses import replace
from typing import Final

from textual import getters, on
from textual.app import ComposeResult
from textual.widgets import Input

from flodl_console.actions import Scope
from flodl_console.messages import RankChosen
from flodl_console.registry import bindings_in
from flodl_console.renderables.event_lines import event_detail, event_lines
from flodl_console.screens.console_screen import ConsoleScreen
from flodl_console.view.events import EventQuery, EventRow, EventsPanel, events_panel
from flodl_console.view.model import ConsoleView
from flodl_console.view.tones import Line, Phrase, Tone
from flodl_console.widgets.marked_lines import MarkedLines
from flodl_console.widgets.phrase_lines import PhraseLines
from flodl_core.telemetry.records import EventKind, EventRecord

_KINDS: Final = (None, *EventKind)
_SEVERITIES: Final = ("info", "warn", "critical")


class EventsScreen(ConsoleScreen):
    """The list of events."""

    SCOPE = Scope.EVENTS
    BINDINGS = bindings_in(Scope.EVENTS)

    summary = getters.query_one("#events-summary", PhraseLines)
    search = getters.query_one("#events-search", Input)
    rows = getters.query_one(MarkedLines)
    detail = getters.query_one("#event-detail", PhraseLines)

    def __init__(self) -> None:
        """Show all events, the newest first, folded."""
        super().__init__()
        self._query = EventQuery()
        self._kind: EventKind | None = None
        self._chosen: int | None = None
        self._first_row = 0
        self._height = 0
        self._known: tuple[EventRecord, ...] | None = None
        self._panel: EventsPanel | None = None

    def compose_content(self) -> ComposeResult:
        """Yield summary, search, list and the chosen event."""
        yield PhraseLines(id="events-summary")
        yield Input(placeholder="words to search for", id="events-search", compact=True)
        yield MarkedLines()
        yield PhraseLines(id="event-detail")

    def on_mount(self) -> None:
        """Hide the field until it is wanted."""
        self.search.display = False

    def show_view(self, view: ConsoleView) -> None:
        """List anew where events came; the clock alone changes nothing here."""
        if view.events is not self._known:
            self._known = view.events
            self._list()

    @property
    def chosen_rank(self) -> int | None:
        """The rank that the chosen event is about."""
        row = self._chosen_row()
        return None if row is None else row.rank

    @property
    def chosen_host(self) -> str | None:
        """The host that the chosen event is about."""
        row = self._chosen_row()
        return None if row is None else row.host

    def text_to_copy(self) -> str:
        """Return the chosen event as one line."""
        row = self._chosen_row()
        if row is None:
            return ""
        fix = f" Fix: {row.fix}" if row.fix else ""
        return f"{row.time} {row.severity} {row.where}: {row.text}{fix}"

    @on(MarkedLines.HeightChanged)
    def take_height(self, message: MarkedLines.HeightChanged) -> None:
        """List as many rows as fit."""
        self._height = message.rows
        self._list()

    @on(Input.Changed, "#events-search")
    def take_text(self, event: Input.Changed) -> None:
        """Search while one types."""
        self._ask(replace(self._query, text=event.value))

    @on(Input.Submitted, "#events-search")
    def end_typing(self) -> None:
        """Go back to the list; the search stays."""
        self.set_focus(None)
        self.search.display = bool(self.search.value)

    def field_left(self) -> None:
        """Drop the search."""
        self.search.value = ""
        self.search.display = False

    def action_search(self) -> None:
        """Type words that events must contain."""
        self.search.display = True
        self.search.focus()

    def action_next_kind(self) -> None:
        """Show the next kind only, or all."""
        self._kind = _KINDS[(_KINDS.index(self._kind) + 1) % len(_KINDS)]
        kinds = frozenset() if self._kind is None else frozenset({self._kind})
        self._ask(replace(self._query, kinds=kinds))

    def action_next_severity(self) -> None:
        """Leave out what is less grave, or show all."""
        place = _SEVERITIES.index(self._query.min_severity)
        self._ask(replace(self._query, min_severity=_SEVERITIES[(place + 1) % len(_SEVERITIES)]))

    def action_toggle_fold(self) -> None:
        """Fold consequences under their causes, or list them too."""
        self._ask(replace(self._query, is_all_unfolded=not self._query.is_all_unfolded))

    def action_move(self, rows: int) -> None:
        """Choose another event."""
        if self._panel is None or not self._panel.seqs:
            return
        seqs = self._panel.seqs
        place = min(len(seqs) - 1, max(0, self._place() + rows))
        self._chosen = None if place == 0 else seqs[place]
        self._list()

    def action_move_page(self, pages: int) -> None:
        """Choose an event a page away."""
        self.action_move(pages * max(1, self._height - 1))

    def action_newest(self) -> None:
        """Choose the newest and follow."""
        self._chosen = None
        self._list()

    def action_oldest(self) -> None:
        """Choose the oldest."""
        self.action_move(len(self._panel.seqs) if self._panel else 0)

    def action_jump(self) -> None:
        """Show the rank that the chosen event is about."""
        rank = self.chosen_rank
        if rank is None:
            self.notice("this event is about no single rank", is_problem=True)
        else:
            self.post_message(RankChosen(rank))

    def _ask(self, query: EventQuery) -> None:
        self._query = query
        self._list()

    def _place(self) -> int:
        """Return the row of the chosen event; the first where it is no longer listed."""
        if self._panel is None or self._chosen not in self._panel.seqs:
            return 0
        return self._panel.seqs.index(self._chosen)

    def _chosen_row(self) -> EventRow | None:
        panel = self._panel
        if panel is None:
            return None
        place = self._place() - panel.first_row
        return panel.rows[place] if 0 <= place < len(panel.rows) else None

    def _list(self) -> None:
        """Ask for the rows that are in sight and draw them."""
        if not self.is_mounted:
            return
        height = max(1, self._height)
        panel = self._rows_from(self._first_row, height)
        self._panel = panel
        place = self._place()
        last_first = max(0, len(panel.seqs) - height)
        first = min(max(self._first_row, place - height + 1), place, last_first)
        if first != panel.first_row:
            panel = self._panel = self._rows_from(first, height)
        self._first_row = first
        self._draw(panel, place - first)

    def _rows_from(self, first_row: int, height: int) -> EventsPanel:
        return events_panel(self.view, self._query, first_row=first_row, max_rows=height)

    def _draw(self, panel: EventsPanel, marked: int) -> None:
        width = self.app.size.width
        self.summary.lines = (self._summary(panel),)
        if panel.rows:
            self.rows.lines = event_lines(
                panel.rows, width=self.rows.line_cells, where_cells=panel.where_cells
            )
            self.rows.marked = marked
        else:
            self.rows.lines = ((Phrase(panel.empty_text, Tone.DIM),),)
            self.rows.marked = None
        row = self._chosen_row()
        self.detail.lines = () if row is None else event_detail(row, width=width)

    def _summary(self, panel: EventsPanel) -> Line:
        kind = "all kinds" if self._kind is None else f"{self._kind.value} only"
        severity = self._query.min_severity
        grave = "all severities" if severity == "info" else f"{severity} or worse"
        fold = "unfolded" if self._query.is_all_unfolded else "folded"
        return (
            Phrase(panel.summary),
            Phrase(f"  {kind}, {grave}, {fold}", Tone.DIM),
            Phrase(f"  {panel.lost_text}" if panel.lost_text else "", Tone.WARN),
        )
