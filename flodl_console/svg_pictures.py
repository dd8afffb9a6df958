"""Pictures of a screen that look alike everywhere: Textual's SVG with drawn dots and lines.

What it is: pure text in, text or PNG bytes out. Braille, blocks and box lines become
shapes, because fonts disagree about their widths; names are made the same each time.
What it is not: the taking of a picture; the app exports the SVG.
Who drives it: `flodl_console.screenshots`, and the export action.
"""

import hashlib
import html
import re
import struct
import unicodedata
import zlib
from collections.abc import Iterator
from typing import Final

CELL_WIDTH: Final = 12.2
CELL_HEIGHT: Final = 24.4
"""One cell of Textual's SVG, in its own units."""

_BASELINE: Final = 18.5
"""From the upper edge of a cell to its text's base line."""

_LINE: Final = 1.6
_DOT: Final = 3.4
_SHADE: Final = 1.8
_SOURCE_KEY: Final = b"flodl-svg-sha256"

_TEXT: Final = re.compile(
    r'<text class="(?P<css>[^"]+)" x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)"'
    r"(?P<rest>[^>]*)>(?P<words>[^<]*)</text>"
)
_LENGTH: Final = re.compile(r' textLength="[^"]*"')
_EMPTY_BRAILLE: Final = "\u2800"
_UNIQUE: Final = re.compile(r"\bterminal-\d+-")
_FONT: Final = "Fira Code, monospace"
_PNG_FONT: Final = "DejaVu Sans Mono"

_ARMS: Final = {
    "─": "lr",
    "│": "ud",
    "┌": "rd",
    "╭": "rd",
    "┐": "ld",
    "╮": "ld",
    "└": "ru",
    "╰": "ru",
    "┘": "lu",
    "╯": "lu",
    "├": "udr",
    "┤": "udl",
    "┬": "lrd",
    "┴": "lru",
    "┼": "lrud",
}
"""Into which directions a box line runs from the middle of its cell."""

_DOTS: Final = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of each bit of a Braille pattern."""


def drawn_svg(svg: str) -> str:
    """Return Textual's SVG with shapes for what fonts draw differently, the same each time."""
    return _UNIQUE.sub("terminal-", _TEXT.sub(_with_shapes, svg))


def png_of(svg: str) -> bytes:
    """Return the picture as PNG, with the digest of the SVG in it.

    Args:
        svg: what `drawn_svg` returned.

    Raises:
        ModuleNotFoundError: cairosvg is not installed; it comes with flodl[dev].
    """
    import cairosvg

    made: bytes = cairosvg.svg2png(bytestring=svg.replace(_FONT, _PNG_FONT).encode())
    head, rest = made[:33], made[33:]
    return head + _text_chunk(_SOURCE_KEY, digest_of(svg).encode()) + rest


def digest_of(svg: str) -> str:
    """Return what says which picture a PNG was made from."""
    return hashlib.sha256(svg.encode()).hexdigest()


def digest_in(png: bytes) -> str | None:
    """Return the digest of the SVG that a PNG was made from; None if it carries none."""
    place = png.find(_SOURCE_KEY + b"\0")
    if place < 0:
        return None
    begin = place + len(_SOURCE_KEY) + 1
    return png[begin : begin + 64].decode("ascii", "replace")


def _text_chunk(key: bytes, value: bytes) -> bytes:
    body = b"tEXt" + key + b"\0" + value
    return struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))


def _with_shapes(found: re.Match[str]) -> str:
    """Return a text as words in their own places, and shapes for what is no word."""
    css, rest = found["css"], _LENGTH.sub("", found["rest"])
    x, top = float(found["x"]), float(found["y"]) - _BASELINE
    words: list[tuple[float, float, str]] = []
    shapes: list[str] = []
    is_open = False
    for char in html.unescape(found["words"]):
        width = CELL_WIDTH * (2 if unicodedata.east_asian_width(char) in "WF" else 1)
        drawn = "".join(_shapes(char, x, top))
        shapes.append(drawn)
        is_word = not drawn and not char.isspace() and char != _EMPTY_BRAILLE
        if is_word and is_open:
            began, length, word = words[-1]
            words[-1] = (began, length + width, word + char)
        elif is_word:
            words.append((x, width, char))
        is_open = is_word
        x += width
    texts = (
        f'<text class="{css}" x="{began:.1f}" y="{found["y"]}" textLength="{length:.1f}"{rest}>'
        f"{html.escape(word, quote=False)}</text>"
        for began, length, word in words
    )
    path = "".join(shapes)
    return "".join(texts) + (f'<path class="{css}" d="{path}"/>' if path else "")


def _shapes(char: str, x: float, y: float) -> Iterator[str]:
    code = ord(char)
    if 0x2800 < code <= 0x28FF:
        yield from _braille(code - 0x2800, x, y)
    elif 0x2581 <= code <= 0x2588:
        height = CELL_HEIGHT * (code - 0x2580) / 8
        yield _box(x, y + CELL_HEIGHT - height, CELL_WIDTH, height)
    elif 0x2589 <= code <= 0x258F:
        yield _box(x, y, CELL_WIDTH * (0x2590 - code) / 8, CELL_HEIGHT)
    elif char == "░":
        yield from _shade(x, y)
    elif char in _ARMS:
        yield from _box_line(_ARMS[char], x, y)


def _braille(bits: int, x: float, y: float) -> Iterator[str]:
    for number, (column, row) in enumerate(_DOTS):
        if bits & 1 << number:
            yield _box(
                x + (column + 0.5) * CELL_WIDTH / 2 - _DOT / 2,
                y + (row + 0.5) * CELL_HEIGHT / 4 - _DOT / 2,
                _DOT,
                _DOT,
            )


def _shade(x: float, y: float) -> Iterator[str]:
    for row in range(4):
        for column in range(2):
            left = x + (column + 0.5 * (row % 2)) * CELL_WIDTH / 2
            yield _box(left, y + row * CELL_HEIGHT / 4, _SHADE, _SHADE)


def _box_line(arms: str, x: float, y: float) -> Iterator[str]:
    left = x if "l" in arms else x + (CELL_WIDTH - _LINE) / 2
    right = x + CELL_WIDTH if "r" in arms else x + (CELL_WIDTH + _LINE) / 2
    upper = y if "u" in arms else y + (CELL_HEIGHT - _LINE) / 2
    lower = y + CELL_HEIGHT if "d" in arms else y + (CELL_HEIGHT + _LINE) / 2
    if "l" in arms or "r" in arms:
        yield _box(left, y + (CELL_HEIGHT - _LINE) / 2, right - left, _LINE)
    if "u" in arms or "d" in arms:
        yield _box(x + (CELL_WIDTH - _LINE) / 2, upper, _LINE, lower - upper)


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.1f},{y:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"
