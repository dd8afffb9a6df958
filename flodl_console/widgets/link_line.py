"""One sentence below the first line, where the road to the run is not as it should be.

What it is: the banner of loading, stale, disconnected, ended, gone and paused; more than
one line where the reason must not be cut.
What it is not: shown while all is well.
Who drives it: `ConsoleScreen` sets both phrases; empty ones hide the line.
"""

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from flodl_console.view.texts import cell_width
from flodl_console.view.tones import Phrase
from flodl_console.widgets.tone_text import toned


class LinkLine(Widget):
    """A line that takes no room while it has nothing to say."""

    DEFAULT_CSS = """
    LinkLine {
        height: auto; max-height: 3; width: 1fr; background: $surface; padding: 0 1; display: none;
    }
    """

    long: reactive[Phrase] = reactive(Phrase(""), layout=True)
    """The whole sentence."""
    short: reactive[Phrase] = reactive(Phrase(""), layout=True)
    """The same for a narrow terminal."""
    is_whole: reactive[bool] = reactive(default=False, layout=True)
    """Whether the whole sentence is shown wherever, on more lines if it must be."""

    def watch_long(self, phrase: Phrase) -> None:
        """Take room only with a text."""
        self.display = bool(phrase.text)

    def render(self) -> Text:
        """Draw the sentence that fits."""
        fits = cell_width(self.long.text) <= self.size.width
        text = toned((self.long if fits or self.is_whole else self.short,), self.app.theme)
        text.no_wrap = not self.is_whole
        text.overflow = "fold" if self.is_whole else "ellipsis"
        return text
