"""The past of one rank as plots.

What it is: the last values of a quantity as a picture's content, over the run's age.
What it is not: the values; `view.rank_detail` picks them.
Who drives it: the Rank screen, where there is room for more than sparklines.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from flodl_console.view.formats import duration, plottable
from flodl_console.view.plots import Plot, PlotKind, Series
from flodl_console.view.rank_detail import RankTrend
from flodl_core.telemetry.records import WindowRecord

_KINDS: Final[Mapping[str, PlotKind]] = {
    "batches": PlotKind.COUNTS,
    "divergence": PlotKind.DIVERGENCE,
    "ms/batch": PlotKind.SPEED,
}
"""Of a trend by its label; any other is a part of the window."""


def trend_plot(trend: RankTrend, windows: Sequence[WindowRecord], *, hue: int) -> Plot:
    """Return a trend as a plot.

    Args:
        trend: its values belong to the last of the windows; what cannot be drawn is a gap.
        windows: oldest first, at least as many as the trend has values.
        hue: of the curve.
    """
    shown = windows[len(windows) - len(trend.values) :]
    points = [
        (window.uptime_s, plottable(value))
        for window, value in zip(shown, trend.values, strict=True)
        if plottable(window.uptime_s) is not None
    ]
    known = [value for _, value in points if value is not None]
    low_s = points[0][0] if points else 0.0
    high_s = max(points[-1][0] if points else 1.0, low_s + 1.0)
    low, high = min(known, default=0.0), max(known, default=0.0)
    room = 0.0 if high > low else abs(low) * 0.1 or 1.0
    series = Series(
        name=trend.label,
        xs=tuple(x for x, _ in points),
        ys=tuple(y for _, y in points),
        hue=hue,
        last=trend.last,
    )
    return Plot(
        kind=_KINDS.get(trend.label, PlotKind.WINDOW),
        title=trend.label,
        series=(series,) if known else (),
        left_out="",
        x_low_s=low_s,
        x_high_s=high_s,
        x_text=f"{duration(low_s)} – {duration(high_s)} of the run",
        y_low=low - room,
        y_high=high + room,
        empty_text="" if known else "no window has ended yet",
    )
