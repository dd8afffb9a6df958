"""One sentence below the first line, where the road to the run is not as it should be.

What it is: the banner of loading, stale, disconnected, ended and paused.
What it is not: shown while all is well.
Who drives it: `ConsoleScreen` sets `phrase`; empty text hides the line.
"""

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from flodl_console.view.tones import Phrase
from flodl_console.widgets.tone_text import toned


class LinkLine(Widget):
    """A line that takes no room while it has nothing to say."""

    DEFAULT_CSS = """
    LinkLine { height: 1; width: 1fr; background: $surface; padding: 0 1; display: none; }
    """

    phrase: reactive[Phrase] = reactive(Phrase(""))

    def watch_phrase(self, phrase: Phrase) -> None:
        """Take room only with a text."""
        self.display = bool(phrase.text)

    def render(self) -> Text:
        """Draw the sentence."""
        return toned((self.phrase,), self.app.theme)
