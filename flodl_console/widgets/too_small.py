"""What stands on every screen while the terminal is too small for it.

What it is: the size that is needed and the size that is there.
What it is not: a screen of its own; resizing shows and hides it by its style classes.
Who drives it: the breakpoints of the app.
"""

from rich.text import Text
from textual.widget import Widget

from flodl_console.settings import MIN_HEIGHT_CELLS, MIN_WIDTH_CELLS


class TooSmall(Widget):
    """Covers everything while one side is too short."""

    DEFAULT_CSS = """
    TooSmall {
        layer: cover; width: 100%; height: 100%; dock: top;
        background: $background; color: $foreground;
        content-align: center middle; text-align: center; display: none;
    }
    """

    def render(self) -> Text:
        """Draw four short lines."""
        width, height = self.app.size
        lines = (
            "terminal too small",
            f"needs {MIN_WIDTH_CELLS}×{MIN_HEIGHT_CELLS}",
            f"has {width}×{height}",
            "q detaches",
        )
        return Text("\n".join(lines), justify="center")
