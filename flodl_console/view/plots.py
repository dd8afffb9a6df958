"""The plots: how loss, divergence, counts, windows and speed went.

What it is: series of numbers with gaps, thinned to a width, with their axes in words.
What it is not: a drawing.
Who drives it: the Training and Rank screens.
"""

from dataclasses import dataclass
from enum import StrEnum


class PlotKind(StrEnum):
    """What a plot shows."""

    LOSS = "loss"
    DIVERGENCE = "divergence"
    COUNTS = "counts"
    WINDOW = "window"
    SPEED = "speed"


class PlotZoom(StrEnum):
    """How much of the past a plot shows."""

    ALL = "all"
    HOURS = "3 h"
    HOUR = "1 h"
    MINUTES = "10 m"
    MINUTE = "1 m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve."""

    name: str
    """`rank 2 blue`, at most 24 cells."""
    xs: tuple[float, ...]
    """Seconds of the run's age, rising."""
    ys: tuple[float | None, ...]
    """As long as `xs`; None is a gap. All others are finite."""
    hue: int
    """Which of the theme's plot colours, from 0; a rank keeps its own."""
    last: str
    """The newest value with its unit, at most 16 cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One picture's content."""

    kind: PlotKind
    title: str
    """With the unit, at most 40 cells: `window length (ms)`."""
    series: tuple[Series, ...]
    """At most MAX_SERIES."""
    left_out: str
    """`56 more ranks are not drawn`, at most 40 cells; empty if none."""
    x_low_s: float
    x_high_s: float
    """Above `x_low_s`."""
    x_text: str
    """`0 s – 8 h 02 m of the run`, at most 48 cells."""
    y_low: float
    y_high: float
    """Above `y_low`."""
    empty_text: str
    """Why there is nothing to draw, at most 60 cells; empty if there is."""
