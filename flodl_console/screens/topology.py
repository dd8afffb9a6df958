"""The Topology screen: who talks through whom, and how each of them is.

What it is: launcher, hosts, relays and ranks as a tree of lines, with a cursor that stays
with its line.
What it is not: a place where a rank is looked at closely; Enter goes there.
Who drives it: the app.
"""

from typing import Final

from textual import events, getters, on
from textual.app import ComposeResult

from flodl_console.actions import Scope
from flodl_console.messages import RankChosen
from flodl_console.registry import bindings_in
from flodl_console.renderables.verdict_lines import verdict_lines
from flodl_console.screens.console_screen import ConsoleScreen
from flodl_console.view.model import ConsoleView
from flodl_console.view.texts import fit_line
from flodl_console.view.tones import Line, Phrase, Tone
from flodl_console.view.topology import NodeKind, TopologyPanel, TreeLine, topology_panel
from flodl_console.view.waits import run_verdict
from flodl_console.widgets.marked_lines import MarkedLines
from flodl_console.widgets.phrase_lines import PhraseLines

MARGIN_CELLS: Final = 2
"""Left and right of the first lines."""

_PLAIN_KINDS: Final = frozenset({NodeKind.LAUNCHER, NodeKind.HOST})


class TopologyScreen(ConsoleScreen):
    """The tree of a run."""

    SCOPE = Scope.TOPOLOGY
    BINDINGS = bindings_in(Scope.TOPOLOGY)

    CSS = """
    #topology-head { padding: 0 1; height: auto; }
    """

    head = getters.query_one("#topology-head", PhraseLines)
    tree_lines = getters.query_one("#topology-tree", MarkedLines)

    def __init__(self) -> None:
        """Begin at the top."""
        super().__init__()
        self._chosen = "root"
        self._first = 0
        self._panel: TopologyPanel | None = None

    def compose_content(self) -> ComposeResult:
        """Yield the verdict with a summary, and the tree."""
        yield PhraseLines(id="topology-head")
        yield MarkedLines(id="topology-tree")

    @property
    def chosen_rank(self) -> int | None:
        """The rank that the cursor is on."""
        line = self._chosen_line()
        return None if line is None else line.rank

    @property
    def chosen_host(self) -> str | None:
        """The host that the cursor is on, or on a rank of."""
        line = self._chosen_line()
        return None if line is None else line.host

    def show_view(self, view: ConsoleView) -> None:
        """Draw the tree as it is now."""
        self._panel = panel = topology_panel(view)
        verdict = verdict_lines(run_verdict(view), width=max(1, self.size.width - MARGIN_CELLS))
        summary = (Phrase(panel.summary, Tone.DIM),)
        self.head.lines = (*verdict, *([summary] if panel.summary else []))
        self._draw()

    def text_to_copy(self) -> str:
        """Return the whole tree."""
        lines = () if self._panel is None else self._panel.lines
        return "\n".join(f"{line.guides}{line.glyph} {line.text}" for line in lines)

    @on(MarkedLines.HeightChanged)
    def take_height(self) -> None:
        """Draw as many lines as fit."""
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        """Draw anew for another width."""
        del event
        self.show_view(self.view)

    def action_move(self, rows: int) -> None:
        """Choose another line."""
        lines = () if self._panel is None else self._panel.lines
        if lines:
            place = min(len(lines) - 1, max(0, self._place() + rows))
            self._chosen = lines[place].key
            self._draw()

    def action_move_page(self, pages: int) -> None:
        """Choose a line a page away."""
        self.action_move(pages * self._height)

    def action_move_to_end(self, side: int) -> None:
        """Choose the first or the last line."""
        self.action_move(side * len(() if self._panel is None else self._panel.lines))

    def action_open_rank(self) -> None:
        """Show the chosen rank in full."""
        if self.chosen_rank is None:
            self.notice("this line is no rank", is_problem=True)
        else:
            self.post_message(RankChosen(self.chosen_rank))

    @property
    def _height(self) -> int:
        return max(1, self.tree_lines.size.height)

    def _place(self) -> int:
        """Return the row of the chosen line; the first where it is no longer there."""
        lines = () if self._panel is None else self._panel.lines
        return next((row for row, line in enumerate(lines) if line.key == self._chosen), 0)

    def _chosen_line(self) -> TreeLine | None:
        lines = () if self._panel is None else self._panel.lines
        return lines[self._place()] if lines else None

    def _draw(self) -> None:
        """Draw the lines that are in sight, the chosen one among them."""
        panel = self._panel
        if panel is None or not self.is_mounted:
            return
        width, height, place = self.tree_lines.line_cells, self._height, self._place()
        if not panel.lines:
            self.tree_lines.lines = ((Phrase(panel.empty_text, Tone.DIM),),)
            self.tree_lines.marked = None
            return
        last_first = max(0, len(panel.lines) - height)
        self._first = min(max(self._first, place - height + 1), place, last_first)
        shown = panel.lines[self._first : self._first + height]
        self.tree_lines.lines = tuple(_tree_line(line, width) for line in shown)
        self.tree_lines.marked = place - self._first


def _tree_line(line: TreeLine, width: int) -> Line:
    is_plain = line.kind in _PLAIN_KINDS
    return fit_line(
        (
            Phrase(line.guides, Tone.DIM),
            Phrase(f"{line.glyph} ", line.tone),
            Phrase(line.text, Tone.INFO if is_plain else line.tone),
        ),
        width,
    )
