"""The last line of every screen: the keys that matter here, and what they do.

What it is: as many keys as fit, the most important first; one that would be refused now
is dim and struck out.
What it is not: all keys; help lists those.
Who drives it: `ConsoleScreen` and dialogs set `entries`.
"""

from dataclasses import dataclass

from rich.style import Style
from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from flodl_console.themes import tone_style
from flodl_console.view.tones import Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """One key of the bar."""

    key: str
    title: str
    is_enabled: bool = True


class KeyBar(Widget):
    """One line of keys."""

    DEFAULT_CSS = """
    KeyBar { height: 1; width: 1fr; dock: bottom; background: $surface; }
    """

    entries: reactive[tuple[KeyEntry, ...]] = reactive(())

    def render(self) -> Text:
        """Draw whole entries only; what does not fit is left to the help."""
        theme, width = self.app.theme, self.size.width
        dim = tone_style(theme, Tone.DIM)
        line = Text(no_wrap=True, overflow="crop", end="")
        for entry in self.entries:
            piece = Text(end="")
            if entry.is_enabled:
                piece.append(f" {entry.key}", tone_style(theme, Tone.ACCENT))
                piece.append(f" {entry.title} ", tone_style(theme, Tone.INFO))
            else:
                piece.append(f" {entry.key} {entry.title} ", dim + Style(strike=True))
            if line.cell_len + piece.cell_len > width:
                break
            line.append_text(piece)
        return line
