"""A whole plot as strips: title, names and newest values, the curves, the range of time.

What it is: the lay-out of one picture in an exact size.
What it is not: the thinning of series or the choice of a range; `view.plots` does both.
Who drives it: `widgets.plot_panel`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from flodl_console.renderables.phrase_strip import StyleOf
from flodl_console.renderables.plot_drawing import PlotLine, PlotTicks, draw_plot
from flodl_console.view.formats import compact, number
from flodl_console.view.plots import Plot, Series
from flodl_console.view.texts import cell_width, fit, pad
from flodl_console.view.tones import Tone

HueOf: TypeAlias = Callable[[int], Style]
"""How a curve is drawn."""

MIN_WIDTH: Final = 24
MIN_HEIGHT: Final = 5
"""Below either, only the title line is drawn."""

NAMES_FROM_HEIGHT: Final = 8
"""From here on several names have a line of their own."""

_Name: TypeAlias = tuple[str, int]

_COMPACT_FROM: Final = 10_000.0
_MAX_DIGITS: Final = 6
_MAX_RATIO: Final = 1e6
_THREE_TICKS_FROM: Final = 7
_COLOURS: Final = 200


def plot_strips(
    plot: Plot, *, width: int, height: int, style_of: StyleOf, hue_of: HueOf
) -> list[Strip]:
    """Return `height` strips of `width` cells each.

    Args:
        plot: what is drawn.
        width: cells, 1 or more.
        height: lines, 1 or more.
        style_of: how words are drawn.
        hue_of: how the curve of a hue is drawn.
    """
    is_flat = width < MIN_WIDTH or height < MIN_HEIGHT
    names = _names(plot)
    has_own_line = len(names) > 1 and height >= NAMES_FROM_HEIGHT
    heads = [_head(plot, [] if has_own_line else names, width, style_of, hue_of)]
    if has_own_line:
        heads.append(_row(_pieces(names, width, style_of, hue_of), width, style_of))
    left = height - len(heads)
    if is_flat:
        return [*heads, *_blank(width, left, style_of)]
    if plot.empty_text:
        return [*heads, *_notice(plot.empty_text, width, left, style_of)]
    canvas = draw_plot(
        [_line(series) for series in plot.series],
        x_axis=PlotTicks(low=plot.x_low_s, high=plot.x_high_s, at=(), words=()),
        y_axis=_y_axis(plot, left),
        width=width,
        height=left,
    )
    hues = {_colour(series.hue): hue_of(series.hue) for series in plot.series}
    dim = style_of(Tone.DIM)
    return [
        *heads,
        *(
            Strip([Segment(run.text, hues.get(run.colour, dim)) for run in runs], width)
            for runs in canvas
        ),
    ]


def _line(series: Series) -> PlotLine:
    return PlotLine(xs=series.xs, ys=series.ys, colour=_colour(series.hue))


def _colour(hue: int) -> int:
    return hue % _COLOURS + 1


def _y_axis(plot: Plot, height: int) -> PlotTicks:
    low, high = plot.y_low, plot.y_high
    at = (low, (low + high) / 2, high) if height >= _THREE_TICKS_FROM else (low, high)
    words = tuple(_tick(value, high - low) for value in at)
    return PlotTicks(low=low, high=high, at=at, words=words)


def _tick(value: float, span: float) -> str:
    """Return a value with as many digits as it takes to tell the ends of an axis apart."""
    if abs(value) >= _COMPACT_FROM:
        return compact(value)
    size = max(abs(value), span)
    more = int(math.log10(size / span)) if span > 0.0 and size / span < _MAX_RATIO else 0
    return number(value, digits=min(_MAX_DIGITS, 3 + more))


def _head(
    plot: Plot, names: Sequence[_Name], width: int, style_of: StyleOf, hue_of: HueOf
) -> Strip:
    """Title, names as far as there is room, and the range of time at the right end."""
    title = fit(plot.title, width)
    left = width - cell_width(title)
    pieces = [(title, style_of(Tone.ACCENT)), *_pieces(names, left, style_of, hue_of)]
    left -= sum(cell_width(text) for text, _ in pieces[1:])
    more = f"  {plot.left_out}" if plot.left_out else ""
    span = "" if plot.empty_text else f"  {plot.x_text}"
    for text in (more, span):
        if text and cell_width(text) <= left:
            shown = pad(text, left, is_right=True) if text is span else text
            pieces.append((shown, style_of(Tone.DIM)))
            left -= cell_width(shown)
    return _row(pieces, width, style_of)


def _names(plot: Plot) -> list[_Name]:
    """Return each curve's name and newest value with its hue; of a lone one only the value."""
    if len(plot.series) == 1:
        return [(f"  {plot.series[0].last}", plot.series[0].hue)]
    return [(f"  {one.name} {one.last}", one.hue) for one in plot.series]


def _pieces(
    names: Sequence[_Name], width: int, style_of: StyleOf, hue_of: HueOf
) -> list[tuple[str, Style]]:
    """Return whole names as far as they fit, and how many do not."""
    pieces: list[tuple[str, Style]] = []
    left = width
    for place, (text, hue) in enumerate(names):
        rest = len(names) - place - 1
        if cell_width(text) + (len(f"  +{rest}") if rest else 0) > left:
            more = f"  +{rest + 1}"
            return [*pieces, (more, style_of(Tone.DIM))] if len(more) <= left else pieces
        pieces.append((text, hue_of(hue)))
        left -= cell_width(text)
    return pieces


def _row(pieces: Sequence[tuple[str, Style]], width: int, style_of: StyleOf) -> Strip:
    left = width - sum(cell_width(text) for text, _ in pieces)
    filled = [*pieces, (" " * left, style_of(Tone.DIM))]
    return Strip([Segment(text, style) for text, style in filled if text], width)


def _blank(width: int, height: int, style_of: StyleOf) -> list[Strip]:
    return [Strip([Segment(" " * width, style_of(Tone.DIM))], width) for _ in range(height)]


def _notice(text: str, width: int, height: int, style_of: StyleOf) -> list[Strip]:
    shown = fit(text, width)
    before = (width - cell_width(shown)) // 2
    lines = _blank(width, height, style_of)
    lines[height // 2] = Strip(
        [Segment(pad(" " * before + shown, width), style_of(Tone.DIM))], width
    )
    return lines
