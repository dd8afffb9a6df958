"""The ElChe panel: who does how many batches, and why.

What it is: the cadence's phase, anchor, counts and guard, with the reason it gives itself.
What it is not: the counts' history as a plot; `view.plots` makes that.
Who drives it: the Training screen.
"""

from dataclasses import dataclass

from flodl_console.view.tones import Line, Phrase, Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """The batches of one rank between two averages."""

    rank: int
    host: str
    """At most 24 cells."""
    count: int
    """0 for a rank that is gone."""
    fraction: float
    """Of the largest count, 0 to 1."""
    trend: tuple[float, ...]
    """The last counts, oldest first, at most 60."""
    is_anchor: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ElchePanel:
    """Who does how many batches, and why."""

    is_known: bool
    """False before the world has formed."""
    is_applicable: bool
    """False in Sync, where everybody does one batch between two averages."""
    phase: str
    """`probe: measuring`, at most 40 cells."""
    phase_tone: Tone
    anchor: str
    """`10 batches of rank 2 (blue)`, at most 48 cells."""
    counts: tuple[CountRow, ...]
    """By rank."""
    counts_text: str
    """`60 60 5 5`, at most 60 cells, the rest counted."""
    window_batches: int
    """Sum of the counts."""
    overhead: str
    """`3.1 % of the window, target 5 %`, at most 40 cells."""
    growth: str
    """Whether windows may grow, in words, at most 60 cells."""
    guard: str
    """`level: stable`, at most 40 cells."""
    guard_tone: Tone
    reason: str
    """One sentence: why the counts are what they are, at most 240 cells."""
    lines: tuple[tuple[str, Phrase], ...]
    """Label and value of each fact, labels at most 12 cells; the reason is not among them."""
    summary: Line
    """All of it in one line of at most 78 cells."""
