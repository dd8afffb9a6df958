"""One plot: curves in the theme's colours, drawn anew only when its content changed.

What it is: a widget over `renderables.plot_picture`.
What it is not: a reader of history; the screen makes the plot of the view.
Who drives it: the Training and Rank screens set `plot`.
"""

from rich.style import Style
from textual.geometry import Size
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from flodl_console.hues import hue_style
from flodl_console.renderables.plot_picture import plot_strips
from flodl_console.themes import tone_style
from flodl_console.view.plots import Plot
from flodl_console.view.tones import Tone


class PlotPanel(Widget):
    """One plot in whatever room there is."""

    DEFAULT_CSS = """
    PlotPanel {
        height: 1fr;
        width: 1fr;
    }
    """

    plot: reactive[Plot | None] = reactive(None)

    def __init__(self) -> None:
        """Begin with nothing drawn."""
        super().__init__()
        self._drawn: list[Strip] = []
        self._drawn_for: tuple[Plot | None, Size, str] | None = None

    def render_line(self, y: int) -> Strip:
        """Return one line of the picture, which is drawn at most once for what it shows."""
        wanted = (self.plot, self.size, self.app.theme)
        if wanted != self._drawn_for:
            self._drawn = self._draw()
            self._drawn_for = wanted
        return self._drawn[y] if y < len(self._drawn) else Strip.blank(self.size.width)

    def _draw(self) -> list[Strip]:
        if self.plot is None or not self.size:
            return []
        strips = plot_strips(
            self.plot,
            width=self.size.width,
            height=self.size.height,
            style_of=self._tone,
            hue_of=self._hue,
        )
        return [strip.apply_style(self.rich_style) for strip in strips]

    def _tone(self, tone: Tone) -> Style:
        return tone_style(self.app.theme, tone)

    def _hue(self, hue: int) -> Style:
        return hue_style(self.app.theme, hue)
