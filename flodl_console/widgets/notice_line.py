"""What the console has to say after a key: an answer of the run, or why nothing was done.

What it is: one line above the keys, for some seconds.
What it is not: a log; what happened to the run stands in the events.
Who drives it: `ConsoleScreen.notice`.
"""

from typing import Final

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from flodl_console.view.texts import clean
from flodl_console.view.tones import Glyph, Phrase, Tone
from flodl_console.widgets.tone_text import toned

SHOWN_S: Final = 12.0


class NoticeLine(Widget):
    """A line over the content that goes by itself."""

    DEFAULT_CSS = """
    NoticeLine {
        height: auto; max-height: 3; width: 1fr; dock: bottom; margin: 0 0 1 0;
        background: $cursor; padding: 0 1; display: none; layer: notice;
    }
    """

    phrase: reactive[Phrase] = reactive(Phrase(""), layout=True)

    def say(self, text: str, *, is_problem: bool) -> None:
        """Show a sentence in the place of what is shown; it may hold a peer's words."""
        glyph, tone = (Glyph.WARN, Tone.WARN) if is_problem else (Glyph.OK, Tone.OK)
        phrase = Phrase(f"{glyph} {clean(text)}", tone)
        self.phrase = phrase
        self.set_timer(SHOWN_S, lambda: self._hide(phrase))

    def clear(self) -> None:
        """Show nothing."""
        self.phrase = Phrase("")

    def watch_phrase(self, phrase: Phrase) -> None:
        """Be there only with a text."""
        self.display = bool(phrase.text)

    def render(self) -> Text:
        """Draw the sentence, on more than one line where it is long."""
        text = toned((self.phrase,), self.app.theme)
        text.no_wrap = False
        text.overflow = "fold"
        return text

    def _hide(self, phrase: Phrase) -> None:
        if self.phrase is phrase:
            self.clear()
