"""The first line of every screen: which screens there are, and where the data comes from.

What it is: the tabs, the run's name and the state of the road to it.
What it is not: the whole sentence about that road; `link_line` says it where it matters.
Who drives it: `ConsoleScreen` sets its reactives.
"""

from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from flodl_console.themes import tone_style
from flodl_console.view.tones import Phrase, Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One screen that a key shows."""

    key: str
    title: str
    is_active: bool


class Masthead(Widget):
    """Tabs at the left, run and road at the right; the name gives way first."""

    DEFAULT_CSS = """
    Masthead { height: 1; width: 1fr; background: $surface; }
    """

    tabs: reactive[tuple[Tab, ...]] = reactive(())
    run_name: reactive[str] = reactive("")
    road: reactive[Phrase] = reactive(Phrase(""))

    def render(self) -> Text:
        """Draw the line; at narrow widths tabs that are not active are their keys only."""
        width = self.size.width
        right = self._right()
        left = self._left(is_short=False)
        if left.cell_len + 1 + cell_len(self.road.text) > width:
            left = self._left(is_short=True)
        room = width - left.cell_len - 1
        if right.cell_len > room:
            right = self._right(is_named=False)
        right.truncate(max(0, room), overflow="ellipsis")
        gap = max(0, width - left.cell_len - right.cell_len)
        line = Text(no_wrap=True, overflow="crop", end="")
        return line.append_text(left).append(" " * gap).append_text(right)

    def _left(self, *, is_short: bool) -> Text:
        theme = self.app.theme
        text = Text(end="")
        for tab in self.tabs:
            if tab.is_active:
                style = tone_style(theme, Tone.ACCENT) + Style(reverse=True)
                text.append(f" {tab.key} {tab.title} ", style)
            else:
                words = tab.key if is_short else f"{tab.key} {tab.title}"
                text.append(f" {words} ", tone_style(theme, Tone.DIM))
        return text

    def _right(self, *, is_named: bool = True) -> Text:
        theme = self.app.theme
        text = Text(end="")
        if is_named and self.run_name:
            text.append(f"{self.run_name}  ", tone_style(theme, Tone.INFO))
        return text.append(self.road.text + " ", tone_style(theme, self.road.tone))
