"""Who is missing, who is slow, and what every wait will end in.

What it is: the one-line verdict of a run, and the rows behind it.
What it is not: enforcement; the run itself acts at its ceilings.
Who drives it: every screen shows the verdict; Training and Rank show the rows.
"""

from dataclasses import dataclass

from flodl_console.view.tones import Glyph, Line, Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRow:
    """Somebody waits."""

    who: str
    """`rank 2 on blue` or `the run`, at most 40 cells."""
    phase: str
    """In what, at most 100 cells."""
    age: str
    """Age and ceiling, `12.1 / 30 s`, at most 20 cells."""
    outcome: str
    """What happens at the ceiling, at most 80 cells."""
    remaining_s: float | None
    """Until then; None without a ceiling."""
    fraction: float | None
    """Age as a part of the ceiling, 0 to 1."""
    tone: Tone
    rank: int | None
    """The rank to jump to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """What an operator must know first."""

    tone: Tone
    glyph: Glyph
    text: str
    """Who, where, how long, and what happens next; at most 160 cells."""
    short: str
    """The same in at most 76 cells, so that it fits beside a glyph at 80 columns."""
    line: Line
    """Glyph and `short` as one line of at most 78 cells."""
    rank: int | None
    """The rank that it is about, to jump to."""
    waits: tuple[WaitRow, ...]
    """Every wait that the run names, the next to end first."""
    missing: tuple[str, ...]
    """`rank 2 on blue`, or `host blue` before the world has formed; each at most 40 cells."""
    slow: tuple[str, ...]
    """`rank 3 on blue: ×10`, each at most 48 cells."""
