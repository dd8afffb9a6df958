"""Lines that are in sight of a longer list, one of them chosen.

What it is: lines of which one is marked, and a word of how many fit.
What it is not: the list's content; the screen makes the lines that are in sight.
Who drives it: the Events and Topology screens set `lines` and `marked`.
"""

from dataclasses import dataclass

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from flodl_console.renderables.phrase_strip import CHOSEN, CURSOR_CELLS, phrase_strip
from flodl_console.themes import cursor_style
from flodl_console.view.tones import Phrase, Tone
from flodl_console.widgets.phrase_lines import PhraseLines


class MarkedLines(PhraseLines):
    """Lines with a marked one; CURSOR_CELLS at the left end are for the mark."""

    DEFAULT_CSS = """
    MarkedLines { height: 1fr; width: 1fr; }
    """

    @dataclass
    class HeightChanged(Message):
        """Another number of lines fits."""

        rows: int

    marked: reactive[int | None] = reactive(None, repaint=False)
    """Number of the chosen line; None if there is none."""

    @property
    def line_cells(self) -> int:
        """Cells of a line beside the mark."""
        return max(1, self.size.width - CURSOR_CELLS)

    def watch_marked(self, old: int | None, new: int | None) -> None:
        """Have both lines drawn again."""
        rows = [row for row in (old, new) if row is not None]
        self.refresh(*(Region(0, row, self.size.width, 1) for row in rows))

    def on_resize(self, event: events.Resize) -> None:
        """Tell how many lines fit."""
        self.post_message(self.HeightChanged(event.size.height))

    def render_line(self, y: int) -> Strip:
        """Draw one line; the chosen one is marked with a sign, which needs no colour."""
        is_chosen = y == self.marked and y < len(self.lines)
        mark = Phrase(CHOSEN if is_chosen else " " * CURSOR_CELLS, Tone.ACCENT)
        line = self.lines[y] if y < len(self.lines) else ()
        strip = phrase_strip((mark, *line), width=self.size.width, style_of=self.style_of)
        if is_chosen:
            return strip.apply_style(cursor_style(self.app.theme))
        return strip.apply_style(self.rich_style)
