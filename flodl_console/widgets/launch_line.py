"""The line at the end of the form that starts the run.

What it is: a button of one line; it has the focus or not, and says whether all is well.
What it is not: the start; the screen takes Enter.
Who drives it: the form screen sets `is_ready`.
"""

from rich.style import Style
from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from flodl_console.themes import tone_style
from flodl_console.view.tones import Tone


class LaunchLine(Widget, can_focus=True, inherit_bindings=False):
    """`[ Launch ]`."""

    DEFAULT_CSS = """
    LaunchLine { height: 1; width: 1fr; margin: 1 0 0 0; }
    """

    is_ready: reactive[bool] = reactive(default=False)

    def render(self) -> Text:
        """Draw the button; reversed while it has the focus."""
        style = tone_style(self.app.theme, Tone.ACCENT if self.is_ready else Tone.DIM)
        if self.has_focus:
            style += Style(reverse=True)
        words = "Launch" if self.is_ready else "Launch (not yet: see above)"
        return Text(f"[ {words} ]", style)
