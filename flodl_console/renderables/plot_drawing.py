"""Lines over time, drawn with plotext: runs of text with the number of their colour.

What it is: a pure function of points, ticks and a size. The colours are numbers that
the caller turns into styles, so a theme or its absence never reaches plotext.
What it is not: the choice of what is drawn; `view.plots` makes the series, their
ranges and the words of the ticks.
Who drives it: `widgets.plot_panel`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from textual_plotext import Plot

PLOT_COLOURS: Final = 6
"""Colours that lines take in turn, numbered from 1; 0 is that of axes and ticks."""

_SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_COLOUR: Final = re.compile(r"38;5;(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    """One line; a value that is absent leaves a gap."""

    xs: tuple[float, ...]
    ys: tuple[float | None, ...]
    colour: int
    """1 to PLOT_COLOURS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotTicks:
    """One axis: its ends, and where which words stand."""

    low: float
    high: float
    at: tuple[float, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlotRun:
    """Neighbouring cells of one colour."""

    text: str
    colour: int


def draw_plot(
    lines: Sequence[PlotLine],
    *,
    x_axis: PlotTicks,
    y_axis: PlotTicks,
    width: int,
    height: int,
) -> list[list[PlotRun]]:
    """Return `height` lines of runs, each `width` cells wide.

    Args:
        lines: what is drawn; the later covers the earlier.
        x_axis: the lower axis; its high end lies above its low one.
        y_axis: the left axis; its high end lies above its low one.
        width: cells, at least 8.
        height: lines, at least 4.
    """
    figure = Plot()
    figure.plotsize(width, height)
    figure._set_size(width, height)
    figure.theme("clear")
    figure.xaxes(lower=True, upper=False)
    figure.yaxes(left=True, right=False)
    figure.xlim(x_axis.low, x_axis.high)
    figure.ylim(y_axis.low, y_axis.high)
    figure.xticks(list(x_axis.at), list(x_axis.words))
    figure.yticks(list(y_axis.at), list(y_axis.words))
    for line in lines:
        for xs, ys in _unbroken(line):
            draw = figure.plot if len(xs) > 1 else figure.scatter
            draw(xs, ys, color=line.colour, marker="braille")
    if not any(value is not None for line in lines for value in line.ys):
        figure.scatter([x_axis.low], [y_axis.low], marker=" ")
    drawn = figure.build().splitlines()
    runs = [_runs(line, width) for line in drawn[:height]]
    return [*runs, *([PlotRun(" " * width, 0)] for _ in range(height - len(runs)))]


def _unbroken(line: PlotLine) -> Iterator[tuple[list[float], list[float]]]:
    pairs = zip(line.xs, line.ys, strict=True)
    for is_there, group in groupby(pairs, key=lambda pair: pair[1] is not None):
        if is_there:
            known = [(x, y) for x, y in group if y is not None]
            yield [x for x, _ in known], [y for _, y in known]


def _runs(line: str, width: int) -> list[PlotRun]:
    """Read one line of plotext's escape sequences; cut or pad it to `width` cells."""
    runs: list[PlotRun] = []
    colour, left = 0, width
    for number, part in enumerate(_SGR.split(line)):
        if number % 2:
            found = _COLOUR.search(part)
            colour = int(found[1]) if found else 0
        elif part and left > 0:
            runs.append(PlotRun(part[:left], colour))
            left -= len(runs[-1].text)
    if left > 0:
        runs.append(PlotRun(" " * left, 0))
    return runs
