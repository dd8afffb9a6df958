"""Texts broken into lines of a width, alone or beside a label.

What it is: a break at spaces, and inside a word only where the word is longer than a line.
What it is not: a cut; nothing is left out.
Who drives it: the drawings of Window, Events and of a run's end.
"""

from collections.abc import Iterator

from flodl_console.view.texts import cell_width
from flodl_console.view.tones import Line, Phrase, Tone


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines of at most `width` cells.

    Args:
        text: cleaned.
        width: cells, at least 2.
    """
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cell_width(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        *full, line = _pieces(word, width)
        lines += full
    return [*lines, line] if line else lines


def beside(head: Line, text: str, width: int, *, tone: Tone) -> Iterator[Line]:
    """Yield a text to the right of a head; its further lines begin below its first one.

    Args:
        head: drawn once; less than `width` cells.
        text: cleaned.
        width: cells of the lines.
        tone: of the text.
    """
    indent = line_cells(head)
    for number, part in enumerate(wrapped(text, width - indent)):
        yield (*(head if number == 0 else (Phrase(" " * indent),)), Phrase(part, tone))


def line_cells(line: Line) -> int:
    """Return how many cells a line takes."""
    return sum(cell_width(phrase.text) for phrase in line)


def _pieces(word: str, width: int) -> list[str]:
    pieces: list[str] = []
    piece = ""
    for char in word:
        if cell_width(piece + char) > width:
            pieces.append(piece)
            piece = ""
        piece += char
    return [*pieces, piece]
