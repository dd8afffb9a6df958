"""The last thing that happens to a line before it is drawn: harmless, without colour, in ASCII.

What it is: filters over finished lines, so that no widget can forget one.
What it is not: a choice of words; a text keeps its width and its place.
Who drives it: the app returns them in `get_line_filters`.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from rich.cells import cell_len
from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from flodl_console.view.plain import ASCII_TWINS

_PLAIN: Final = Style.from_color(RichColor.parse("default"), RichColor.parse("default"))

_MORE_TWINS: Final = {
    "▓": "#",
    "▒": "=",
    "▀": "#",
    "▄": "#",
    "▌": "#",
    "▐": "#",
    "─": "-",
    "━": "-",
    "═": "=",
    "│": "|",
    "┃": "|",
    "║": "|",
    "“": '"',
    "”": '"',
    "„": '"',
    "‘": "'",
    "’": "'",
}
"""What Textual and people draw beside our own glyphs; each twin is as wide."""

_TWINS: Final = {**_MORE_TWINS, **ASCII_TWINS}

_STEERING: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, line separators, direction marks and lone surrogates."""


def chosen_filters(*, is_colourless: bool, is_ascii: bool) -> tuple[LineFilter, ...]:
    """Return what every line goes through, in this order."""
    filters: list[LineFilter] = [HarmlessLines()]
    if is_colourless:
        filters.append(ColourlessLines())
    if is_ascii:
        filters.append(AsciiLines())
    return tuple(filters)


class HarmlessLines(LineFilter):
    """Takes away what would steer the terminal; panels have cleaned peers' texts already."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the line without such characters, each piece as wide as it was.

        Args:
            segments: of one line.
            background: stays as it is.
        """
        return [
            segment
            if segment.control or _STEERING.search(segment.text) is None
            else Segment(_STEERING.sub(_unsteered, segment.text), segment.style)
            for segment in segments
        ]


def _unsteered(found: re.Match[str]) -> str:
    return "?" * cell_len(found[0])


class ColourlessLines(LineFilter):
    """Takes every colour away; bold, dim, underline and reverse stay."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the line in the terminal's own two colours.

        Args:
            segments: of one line.
            background: not needed, as none is kept.
        """
        return [
            Segment(text, None if style is None else style + _PLAIN, control)
            for text, style, control in segments
        ]


class AsciiLines(LineFilter):
    """Draws every character with one that any terminal and font has."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the line in ASCII, each piece as wide as it was.

        Args:
            segments: of one line.
            background: stays as it is.
        """
        return [
            segment
            if segment.control or segment.text.isascii()
            else Segment(ascii_text(segment.text), segment.style)
            for segment in segments
        ]


@lru_cache(4096)
def ascii_text(text: str) -> str:
    """Return a text in ASCII that takes as many cells."""
    return "".join(map(_ascii_character, text))


def _ascii_character(character: str) -> str:
    if character.isascii():
        return character
    twin = _TWINS.get(character)
    if twin is not None:
        return twin
    width = cell_len(character)
    if width == 0:
        return ""
    name = unicodedata.name(character, "")
    if name.startswith("BOX DRAWINGS"):
        return "+"
    if name.startswith("BRAILLE"):
        return "."
    if "BLOCK" in name or name.startswith("QUADRANT"):
        return "#"
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return plain.ljust(width, "?")[:width] if plain else "?" * width
