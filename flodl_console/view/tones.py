"""How a text is meant, and the marks that say it without a colour.

What it is: the tones, the glyphs with their ASCII twins, and phrases made of both.
What it is not: colours; a theme chooses those.
Who drives it: every panel of `flodl_console.view`; renderables draw phrases.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias


class Tone(StrEnum):
    """How a text is meant."""

    OK = "ok"
    """As it should be."""
    INFO = "info"
    """Plain text: neither good nor bad."""
    WARN = "warn"
    """Worth a look; the run goes on by itself."""
    BAD = "bad"
    """Something is lost, refused or about to end."""
    DIM = "dim"
    """Less important, or absent."""
    ACCENT = "accent"
    """Chosen, or the thing to look at."""


class Glyph(StrEnum):
    """Marks of one cell; each stands beside a word."""

    OK = "✓"
    INFO = "·"
    WARN = "▲"
    BAD = "✗"
    RUNNING = "●"
    WAITING = "○"
    REDUCING = "◐"
    STARTING = "◌"
    WRITING = "◆"
    BUSY = "!"
    STOPPED = "■"
    SLOW = "▼"
    ANCHOR = "◇"
    PINNED = "▸"
    PAUSED = "‖"
    NONE = " "


@dataclass(frozen=True, slots=True)
class Phrase:
    """A piece of text with its tone; the smallest thing that is drawn."""

    text: str
    """On one line, harmless to a terminal."""
    tone: Tone = Tone.INFO


Line: TypeAlias = tuple[Phrase, ...]
"""One line, left to right."""

RANKING: Final = (Tone.DIM, Tone.INFO, Tone.ACCENT, Tone.OK, Tone.WARN, Tone.BAD)
"""From harmless to grave."""


def gravest(*tones: Tone) -> Tone:
    """Return the gravest of some tones; DIM of none."""
    return max(tones, key=RANKING.index, default=Tone.DIM)


def text_of(line: Line) -> str:
    """Return a line without its tones."""
    return "".join(phrase.text for phrase in line)
