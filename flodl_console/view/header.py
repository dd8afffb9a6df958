"""The header: which run this is, how far it is, how well it goes.

What it is: the facts of the run as short fields, each with the room it needs.
What it is not: a verdict; `view.waits` says what is wrong.
Who drives it: the Training screen, and any screen that names the run.
"""

from dataclasses import dataclass

from flodl_console.view.tones import Glyph, Line, Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderField:
    """One fact of the header."""

    key: str
    """mode, phase, epoch, progress, eta, loss, metric, rate, ideal, ranks, dropped, saved, up."""
    text: str
    """With its unit, at most 36 cells: `loss 0.4312`."""
    tone: Tone
    priority: int
    """1 is the last one to be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderPanel:
    """Which run this is, how far it is, how well it goes."""

    name: str
    """The run's name, at most 40 cells."""
    run_id: str
    mode: str
    """`cpu_cadence`, at most 16 cells."""
    mode_reason: str
    """Why this mode was chosen, at most 160 cells."""
    phase: str
    """The phase as a word, at most 12 cells."""
    phase_tone: Tone
    phase_glyph: Glyph
    progress: float | None
    """Trained part of all samples, 0 to 1; None before training."""
    progress_text: str
    """`41.2 %  12,288 / 29,952 samples`, at most 48 cells."""
    fields: tuple[HeaderField, ...]
    """In reading order, absent facts left out."""
    report: str
    """What the job said of its model at the last evaluation; empty if nothing, one line."""
    title: Line
    """Glyph, phase, name and mode as one line, at most 76 cells."""
