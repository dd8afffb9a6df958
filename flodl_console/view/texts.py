"""Texts in cells: cleaning, measuring, cutting and joining them.

What it is: pure functions; a cell is one column of a terminal.
What it is not: number formats; `view.formats` makes those.
Who drives it: every panel, and renderables that must cut.

Text is measured as East Asian width tells. Whatever terminals disagree about
(combining marks, emoji, conjoining letters) is replaced in `clean`, so that a width is
the same for everybody.
"""

import unicodedata
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from flodl_console.view.tones import Glyph, Line, Phrase, Tone
from flodl_core.telemetry.line_file import show_untrusted

ELLIPSIS: Final = "…"
UNKNOWN: Final = "?"
"""Stands for a character that terminals disagree about."""

MAX_CLEAN_CHARS: Final = 1_000

_OWN: Final = frozenset(ELLIPSIS) | frozenset("".join(Glyph)) | frozenset("│├└─×·–→")
_SURE: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Pc", "Pd", "Ps", "Pe", "Po", "Zs"})
_CONJOINING: Final = ((0x1160, 0x11FF), (0xD7B0, 0xD7FF), (0x3164, 0x3164), (0xFFA0, 0xFFA0))
_NUMBER_CHARS: Final = "0123456789.,"


def clean(text: str) -> str:
    """Return a peer's text on one line, harmless, and of a width that is certain."""
    if text.isascii() and text.isprintable() and len(text) <= MAX_CLEAN_CHARS:
        return text
    shown = show_untrusted(unicodedata.normalize("NFC", text), limit_chars=MAX_CLEAN_CHARS)
    return "".join(char if _is_sure(char) else UNKNOWN for char in shown)


def _is_sure(char: str) -> bool:
    code = ord(char)
    if code < 0x300 or char in _OWN:
        return True
    if any(low <= code <= high for low, high in _CONJOINING):
        return False
    return unicodedata.category(char) in _SURE


def cell_width(text: str) -> int:
    """Return the cells of a text that `clean` returned or that is ours."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def fit(text: str, width: int) -> str:
    """Return the text in at most `width` cells, cut with an ellipsis.

    A number at the cut is left out, since it may go on or lack its unit.

    Args:
        text: cleaned.
        width: cells, 0 or more.
    """
    if cell_width(text) <= width:
        return text
    if width < 1:
        return ""
    kept = _take_cells(text, width - 1).rstrip()
    return kept.rstrip(_NUMBER_CHARS).rstrip() + ELLIPSIS


def _take_cells(text: str, width: int) -> str:
    ends = accumulate(map(cell_width, text))
    return text[: sum(end <= width for end in ends)]


def pad(text: str, width: int, *, is_right: bool = False) -> str:
    """Return the text in exactly `width` cells, cut or filled; flush right if `is_right`."""
    shown = fit(text, width)
    spaces = " " * (width - cell_width(shown))
    return spaces + shown if is_right else shown + spaces


def says(text: str, width: int) -> str:
    """Return a peer's text cleaned and in at most `width` cells."""
    return fit(clean(text), width)


def listed(names: Sequence[str], width: int, *, separator: str = ", ") -> str:
    """Return as many names as fit into `width` cells, and how many more there are.

    Args:
        names: cleaned.
        width: cells; should hold at least the longest name and ` +9999`.
        separator: between two names.
    """
    if sum(map(cell_width, names)) + cell_width(separator) * max(0, len(names) - 1) <= width:
        return separator.join(names)
    used, fitting = 0, 0
    for kept, name in enumerate(names[:-1], 1):
        used += cell_width(name) + (cell_width(separator) if kept > 1 else 0)
        if used + cell_width(_more(separator, len(names) - kept)) <= width:
            fitting = kept
        elif used > width:
            break
    if fitting:
        return separator.join(names[:fitting]) + _more(separator, len(names) - fitting)
    return fit(f"{len(names)} of them", width)


def _more(separator: str, left: int) -> str:
    return f"{separator.rstrip()} +{left}"


def fit_line(line: Line, width: int) -> Line:
    """Return a line in at most `width` cells; the phrase at the edge is cut."""
    kept: list[Phrase] = []
    left = width
    for phrase in line:
        shown = fit(phrase.text, left)
        if shown:
            kept.append(Phrase(shown, phrase.tone))
        left -= cell_width(shown)
        if shown != phrase.text:
            break
    return tuple(kept)


def joined(
    parts: Sequence[tuple[int, Phrase]], width: int, *, separator: str = "  "
) -> tuple[Phrase, ...]:
    """Return the most important parts that fit side by side, in their given order.

    Args:
        parts: priority (1 is the last to be left out) and phrase; empty phrases are left out.
        width: cells; a part is shown whole or not at all, but for the first by priority.
        separator: between two parts.
    """
    filled = [(rank, index) for index, (rank, part) in enumerate(parts) if part.text]
    gap = cell_width(separator)
    chosen: list[int] = []
    used = -gap
    for _, index in sorted(filled):
        cells = cell_width(parts[index][1].text)
        if used + gap + cells > width:
            if not chosen:
                return fit_line((parts[index][1],), width)
            break
        used += gap + cells
        chosen.append(index)
    line: list[Phrase] = []
    for index in sorted(chosen):
        if line:
            line.append(Phrase(separator, Tone.DIM))
        line.append(parts[index][1])
    return tuple(line)
