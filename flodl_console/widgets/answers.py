"""The answers of a dialog; one of them is marked.

What it is: words in a line or one below the other, the marked one reversed and with a
pointer; of many, those around the marked one.
What it is not: a set of buttons; the dialog takes the keys.
Who drives it: `Dialog` sets its reactives.
"""

from typing import Final

from rich.style import Style
from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from flodl_console.themes import tone_style
from flodl_console.view.tones import Tone

MAX_ROWS: Final = 8


class Answers(Widget):
    """One line of answers, or one a line."""

    DEFAULT_CSS = """
    Answers { height: auto; width: 1fr; margin: 1 0 0 0; }
    """

    answers: reactive[tuple[str, ...]] = reactive((), layout=True)
    marked: reactive[int] = reactive(0)
    is_upright: reactive[bool] = reactive(default=False, layout=True)
    """Whether each answer has a line of its own."""

    def render(self) -> Text:
        """Draw the answers that fit."""
        theme = self.app.theme
        text = Text(no_wrap=True, overflow="ellipsis")
        for place, number in enumerate(self._shown()):
            if place:
                text.append("\n" if self.is_upright else "   ")
            answer = self.answers[number]
            if number == self.marked:
                style = tone_style(theme, Tone.ACCENT) + Style(reverse=True)
                text.append(f"> {answer} ", style)
            else:
                text.append(f"  {answer} ", tone_style(theme, Tone.INFO))
        return text

    def _shown(self) -> range:
        count = len(self.answers)
        if not self.is_upright or count <= MAX_ROWS:
            return range(count)
        first = min(max(0, self.marked - MAX_ROWS // 2), count - MAX_ROWS)
        return range(first, first + MAX_ROWS)
