"""The Window screen: who has joined, who is missing, when it closes, whether one may start.

What it is: the join window in one column that scrolls; once the run is over, how it
ended, why, and what to do.
What it is not: the decision to start; the run decides.
Who drives it: the app shows it while a run waits for its ranks.
"""

from textual import events, getters
from textual.app import ComposeResult

from flodl_console.actions import Scope
from flodl_console.registry import bindings_in
from flodl_console.renderables.end_lines import end_lines
from flodl_console.renderables.window_lines import roster_lines, window_lines
from flodl_console.screens.console_screen import ConsoleScreen
from flodl_console.view.actions import ActionId, offer
from flodl_console.view.ending import end_panel
from flodl_console.view.model import ConsoleView
from flodl_console.view.tones import Phrase, Tone
from flodl_console.view.window import window_panel
from flodl_console.widgets.phrase_lines import PhraseLines
from flodl_console.widgets.scroll_pane import ScrollPane

MARGIN_CELLS = 3
"""Left and right of the lines, the scroll bar included."""


class WindowScreen(ConsoleScreen):
    """The join window."""

    SCOPE = Scope.WINDOW
    BINDINGS = bindings_in(Scope.WINDOW)

    board = getters.query_one("#window-board", PhraseLines)
    pane = getters.query_one(ScrollPane)

    def compose_content(self) -> ComposeResult:
        """Yield the one column."""
        with ScrollPane():
            yield PhraseLines(id="window-board")

    def show_view(self, view: ConsoleView) -> None:
        """Draw the window, or that there is nothing yet."""
        panel = window_panel(view)
        width = max(40, self.app.size.width - MARGIN_CELLS)
        if panel is None:
            self.board.lines = ((Phrase("nothing was received from the run yet", Tone.DIM),),)
            return
        end = end_panel(view)
        if end.is_over:
            roster = roster_lines(panel, width=width)
            self.board.lines = (*end_lines(end, width=width), (), *roster)
            return
        start = offer(view, ActionId.START)
        self.board.lines = window_lines(panel, start=start, width=width)

    def text_to_copy(self) -> str:
        """Return the line that another host types, never with the token."""
        panel = window_panel(self.view)
        return "" if panel is None else panel.join_line

    def on_resize(self, event: events.Resize) -> None:
        """Draw anew for another width."""
        del event
        self.show_view(self.view)

    def action_scroll_lines(self, lines: int) -> None:
        """Scroll by lines."""
        self.pane.scroll_lines(lines)
