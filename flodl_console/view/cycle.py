"""The cycle panel: where the averaging stands, and how long it may.

What it is: Idle or Pending with the pending time against the stall ceiling.
What it is not: the cadence between two averages; that is `view.elche`.
Who drives it: the Training screen.
"""

from dataclasses import dataclass

from flodl_console.view.tones import Glyph, Line, Phrase, Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePanel:
    """Where the averaging stands."""

    is_known: bool
    """False before the world has formed."""
    is_pending: bool
    word: str
    """`Idle`, `Pending` or `–`."""
    tone: Tone
    glyph: Glyph
    cycle: str
    """`cycle 41`, at most 20 cells."""
    version: str
    """`version 40`, at most 20 cells: commits so far."""
    gauge: float | None
    """Pending time as a part of the stall ceiling, 0 to 1; None while idle."""
    pending: str
    """`12.1 / 300 s`, at most 20 cells."""
    outcome: str
    """What happens at the ceiling, at most 100 cells; empty while idle."""
    awaited: str
    """`waits for rank 2 (blue)`, at most 60 cells; empty if nobody is known to be missing."""
    last_sync: str
    """`42 ms`, at most 12 cells."""
    last_outcome: str
    """`committed`, at most 16 cells."""
    last_tone: Tone
    overhead: str
    """`3.1 % of the window, target 5 %`, at most 40 cells."""
    overhead_tone: Tone
    volume: str
    """`12.3 MiB by cpu`, at most 24 cells."""
    lines: tuple[tuple[str, Phrase], ...]
    """Label and value of each fact, labels at most 12 cells, values at most 60."""
    summary: Line
    """All of it in one line of at most 78 cells."""
