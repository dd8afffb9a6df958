"""Lines of phrases: the widget behind most panels.

What it is: some lines in, the same lines on screen; only lines that changed are sent.
What it is not: a selector; the screen makes the lines from the view.
Who drives it: screens set `lines`.
"""

from collections.abc import Sequence

from rich.style import Style
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from flodl_console.renderables.phrase_strip import phrase_strip
from flodl_console.themes import tone_style
from flodl_console.view.tones import Line, Tone


class PhraseLines(Widget):
    """Lines of phrases, as many as there are."""

    DEFAULT_CSS = """
    PhraseLines {
        height: auto;
        width: 1fr;
    }
    """

    lines: reactive[tuple[Line, ...]] = reactive((), repaint=False)
    """Top down; a widget of automatic height grows and shrinks with them."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines; one widget line each."""
        del container, viewport, width
        return len(self.lines)

    def watch_lines(self, old: Sequence[Line], new: Sequence[Line]) -> None:
        """Have those lines drawn again that differ."""
        if len(old) != len(new):
            self.refresh(layout=True)
            return
        width = self.size.width
        changed = [y for y, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """Draw one line."""
        line = self.lines[y] if y < len(self.lines) else ()
        strip = phrase_strip(line, width=self.size.width, style_of=self.style_of)
        return strip.apply_style(self.rich_style)

    def style_of(self, tone: Tone) -> Style:
        """Return how a tone is drawn in the app's theme."""
        return tone_style(self.app.theme, tone)
