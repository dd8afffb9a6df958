"""The rows of events that are in sight, one of them chosen.

What it is: lines of which one is marked, and a word of how many fit.
What it is not: the list's content; the screen asks for the rows that are in sight.
Who drives it: the Events screen sets `lines` and `marked`.
"""

from dataclasses import dataclass

from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from flodl_console.widgets.phrase_lines import PhraseLines


class EventList(PhraseLines):
    """Lines with a marked one."""

    DEFAULT_CSS = """
    EventList { height: 1fr; width: 1fr; }
    """

    @dataclass
    class HeightChanged(Message):
        """Another number of rows fits."""

        rows: int

    marked: reactive[int | None] = reactive(None, repaint=False)
    """Number of the chosen line; None if there is none."""

    def watch_marked(self, old: int | None, new: int | None) -> None:
        """Have both lines drawn again."""
        rows = [row for row in (old, new) if row is not None]
        self.refresh(*(Region(0, row, self.size.width, 1) for row in rows))

    def on_resize(self, event: events.Resize) -> None:
        """Tell how many rows fit."""
        self.post_message(self.HeightChanged(event.size.height))

    def render_line(self, y: int) -> Strip:
        """Draw one line; the chosen one in reverse, which needs no colour."""
        strip = super().render_line(y)
        if y == self.marked and y < len(self.lines):
            return strip.apply_style(Style(reverse=True, bold=True))
        return strip
