"""Texts for terminals that know nothing but ASCII; every cell stays where it was.

What it is: one table of twins for our own glyphs.
What it is not: a transliteration; foreign letters become question marks.
Who drives it: renderables and widgets, where the ASCII setting is on.
"""

from typing import Final

from flodl_console.view.texts import UNKNOWN, cell_width
from flodl_console.view.tones import Glyph

ASCII_TWINS: Final = {
    Glyph.OK.value: "+",
    Glyph.INFO.value: ".",
    Glyph.WARN.value: "^",
    Glyph.BAD.value: "X",
    Glyph.RUNNING.value: "*",
    Glyph.WAITING.value: "o",
    Glyph.REDUCING.value: "%",
    Glyph.STARTING.value: ":",
    Glyph.WRITING.value: "&",
    Glyph.STOPPED.value: "#",
    Glyph.SLOW.value: "v",
    Glyph.ANCHOR.value: "@",
    Glyph.PINNED.value: ">",
    Glyph.PAUSED.value: '"',
    "…": "~",
    "–": "-",
    "×": "x",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
    "│": "|",
    "├": "|",
    "└": "`",
    "─": "-",
    "█": "#",
    "░": ".",
    "▁": "_",
    "▂": "_",
    "▃": "-",
    "▄": "-",
    "▅": "=",
    "▆": "=",
    "▇": "#",
}
"""Each of our characters beyond ASCII, with the one that stands for it."""


def to_ascii(text: str) -> str:
    """Return a panel's text in ASCII, of the same width in cells."""
    if text.isascii():
        return text
    return "".join(
        char if char.isascii() else ASCII_TWINS.get(char, UNKNOWN * cell_width(char))
        for char in text
    )
