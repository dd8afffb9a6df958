"""The ASCII twins of the characters that panels and drawings use.

What it is: one table; a twin is one cell wide, as the character is.
What it is not: the filter that replaces them, nor a transliteration of foreign letters.
Who drives it: the console's line filter, where only ASCII is wanted.
"""

from typing import Final

from flodl_console.view.tones import Glyph

ASCII_TWINS: Final = {
    Glyph.OK.value: "+",
    Glyph.INFO.value: ".",
    Glyph.WARN.value: "!",
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
