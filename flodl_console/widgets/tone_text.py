"""A line of a panel as text that Textual can draw.

What it is: phrases with the colours of the theme.
What it is not: any wording; panels hold the words.
Who drives it: widgets, in `render`.
"""

from rich.text import Text

from flodl_console.themes import tone_style
from flodl_console.view.tones import Line


def toned(line: Line, theme: str) -> Text:
    """Return one line; never wrapped, cut at the right edge of where it is drawn.

    Args:
        line: phrases from left to right.
        theme: the app's theme.
    """
    text = Text(no_wrap=True, overflow="ellipsis", end="")
    for phrase in line:
        text.append(phrase.text, tone_style(theme, phrase.tone))
    return text
