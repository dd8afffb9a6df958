"""A line of phrases as a strip: the drawing that most panels are made of.

What it is: text and tones in, one strip of an exact width out.
What it is not: a choice of words, or of colours; the caller hands in both.
Who drives it: line widgets.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from flodl_console.view.texts import cell_width, pad
from flodl_console.view.tones import Line, Tone

StyleOf: TypeAlias = Callable[[Tone], Style]
"""How a tone is drawn."""

CURSOR_CELLS: Final = 1
"""Room at the left end of a list's lines for the mark of the chosen one."""

CHOSEN: Final = "→"
"""The mark of the chosen line, so that it shows without colours."""


def phrase_strip(line: Line, *, width: int, style_of: StyleOf) -> Strip:
    """Return a line in exactly `width` cells.

    Neighbours of one tone become one segment, so that few escape sequences are sent.

    Args:
        line: what is drawn; too long a line is cut with an ellipsis, never in a number.
        width: cells.
        style_of: how a tone is drawn.
    """
    merged = _merged(line)
    segments: list[Segment] = []
    left = width
    for number, (text, tone) in enumerate(merged, 1):
        cells = cell_width(text)
        if cells >= left or number == len(merged):
            segments.append(Segment(pad(text.rstrip(), left), style_of(tone)))
            break
        segments.append(Segment(text, style_of(tone)))
        left -= cells
    return Strip(segments, width)


def _merged(line: Line) -> list[tuple[str, Tone]]:
    merged: list[tuple[str, Tone]] = []
    for phrase in line:
        if merged and (merged[-1][1] is phrase.tone or phrase.text.isspace()):
            merged[-1] = (merged[-1][0] + phrase.text, merged[-1][1])
        elif phrase.text:
            merged.append((phrase.text, phrase.tone))
    return merged or [("", Tone.INFO)]
