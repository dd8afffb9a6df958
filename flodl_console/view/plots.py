"""The plots: how loss, divergence, counts, windows and speed went.

What it is: series of numbers with gaps, thinned to a width, with their axes in words.
What it is not: a drawing.
Who drives it: the Training and Rank screens.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from flodl_console.view.formats import (
    count,
    duration,
    number,
    plottable,
    plural,
    rate,
    span_ms,
)
from flodl_console.view.marks import RankMark, mark_ranks
from flodl_console.view.model import ConsoleView
from flodl_console.view.texts import fit, says
from flodl_core.telemetry.records import WindowRecord

MAX_SERIES: Final = 8
HUES: Final = 8
NAME_CELLS: Final = 24


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
    """As long as `xs`; None is a gap. All others can be drawn together."""
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


_SPANS_S: Final = {
    PlotZoom.ALL: None,
    PlotZoom.HOURS: 3 * 3_600.0,
    PlotZoom.HOUR: 3_600.0,
    PlotZoom.MINUTES: 600.0,
    PlotZoom.MINUTE: 60.0,
}

_TITLES: Final = {
    PlotKind.LOSS: "loss",
    PlotKind.DIVERGENCE: "divergence of each rank",
    PlotKind.COUNTS: "batches of each rank in a window",
    PlotKind.WINDOW: "window length (ms)",
    PlotKind.SPEED: "speed (samples/s)",
}

_Getter = Callable[[WindowRecord], float | None]
_Shower = Callable[[float | None], str]
_PER_RANK: Final = (PlotKind.DIVERGENCE, PlotKind.COUNTS)
_FROM_ZERO: Final = (PlotKind.COUNTS, PlotKind.WINDOW, PlotKind.SPEED)


def zoomed(zoom: PlotZoom, steps: int) -> PlotZoom:
    """Return the zoom so many steps closer, or farther if negative; clamped at both ends."""
    order = tuple(PlotZoom)
    return order[min(len(order) - 1, max(0, order.index(zoom) + steps))]


def plot(
    view: ConsoleView,
    kind: PlotKind,
    *,
    width: int,
    zoom: PlotZoom = PlotZoom.ALL,
    ranks: Collection[int] = (),
) -> Plot:
    """Return a plot of the known windows.

    Args:
        view: of this moment.
        kind: what is plotted.
        width: cells of the drawing; no curve gets more than two points a cell.
        zoom: how much of the past is shown.
        ranks: drawn first, where a curve stands for a rank.
    """
    shown = _zoomed_windows(view.windows, zoom)
    drawn, left_out = _drawn_ranks(view, kind, ranks)
    series = tuple(
        _series(name, hue, shown=shown, getter=getter, show=show, width=width)
        for name, hue, getter, show in _curves(view, kind, drawn)
    )
    kept = tuple(one for one in series if any(y is not None for y in one.ys))
    x_low, x_high = _x_range(shown)
    y_low, y_high = _y_range(kept, from_zero=kind in _FROM_ZERO)
    more = f"{plural(left_out, 'more rank')} not drawn" if left_out else ""
    return Plot(
        kind=kind,
        title=_TITLES[kind],
        series=kept,
        left_out=more,
        x_low_s=x_low,
        x_high_s=x_high,
        x_text=f"{duration(x_low)} – {duration(x_high)} of the run",
        y_low=y_low,
        y_high=y_high,
        empty_text="" if kept else _empty(view),
    )


def _empty(view: ConsoleView) -> str:
    if view.windows:
        return "nothing was measured in this span"
    document = view.document
    if document is None:
        return "no document has come yet"
    if document.newest_window_seq:
        return "the run's history is being read"
    return "no window has ended yet"


def _zoomed_windows(windows: Sequence[WindowRecord], zoom: PlotZoom) -> Sequence[WindowRecord]:
    span_s = _SPANS_S[zoom]
    known = [window for window in windows if plottable(window.uptime_s) is not None]
    if span_s is None or not known:
        return known
    from_s = known[-1].uptime_s - span_s
    return [window for window in known if window.uptime_s >= from_s]


def _drawn_ranks(
    view: ConsoleView, kind: PlotKind, wanted: Collection[int]
) -> tuple[tuple[int, ...], int]:
    """Return the ranks that are drawn: the wanted, the marked, the anchor, then the lowest."""
    document = view.document
    if kind not in _PER_RANK or document is None:
        return (), 0
    existing = {rank.rank for rank in document.ranks}
    anchor = document.elche.anchor_rank if document.elche else None
    marked = [
        rank for rank, one in mark_ranks(view).items() if one.mark in (RankMark.LATE, RankMark.SLOW)
    ]
    first = [rank for rank in (*sorted(wanted), *marked, anchor) if rank in existing]
    order = [rank for rank in dict.fromkeys([*first, *sorted(existing)]) if rank is not None]
    drawn = order[:MAX_SERIES]
    return tuple(sorted(drawn)), len(order) - len(drawn)


def _curves(
    view: ConsoleView, kind: PlotKind, ranks: Sequence[int]
) -> list[tuple[str, int, _Getter, _Shower]]:
    match kind:
        case PlotKind.LOSS:
            return [("loss", 0, lambda one: one.loss, number)]
        case PlotKind.WINDOW:
            return [
                ("window", 0, lambda one: one.window_ms, span_ms),
                ("averaging", 1, lambda one: one.sync_ms, span_ms),
            ]
        case PlotKind.SPEED:
            return [
                ("reached", 0, lambda one: one.throughput, _speed),
                ("ideal", 1, lambda one: one.ideal_throughput, _speed),
            ]
        case PlotKind.DIVERGENCE:
            return [
                (_rank_name(view, rank), rank % HUES, _divergence_of(rank), number)
                for rank in ranks
            ]
    return [(_rank_name(view, rank), rank % HUES, _count_of(rank), _batches) for rank in ranks]


def _speed(value: float | None) -> str:
    return f"{rate(value)}/s"


def _batches(value: float | None) -> str:
    return count(None if value is None else int(value))


def _rank_name(view: ConsoleView, rank: int) -> str:
    ranks = view.document.ranks if view.document else ()
    host = next((one.host for one in ranks if one.rank == rank), "")
    return fit(f"rank {rank} {says(host, 16)}", NAME_CELLS)


def _divergence_of(rank: int) -> _Getter:
    return lambda one: one.divergences[rank] if rank < len(one.divergences) else None


def _count_of(rank: int) -> _Getter:
    return lambda one: one.batch_counts[rank] if rank < len(one.batch_counts) else None


def _series(
    name: str,
    hue: int,
    *,
    shown: Sequence[WindowRecord],
    getter: _Getter,
    show: _Shower,
    width: int,
) -> Series:
    points = [(window.uptime_s, plottable(getter(window))) for window in shown]
    thinned = thin(points, max(1, width))
    newest = next((y for _, y in reversed(points) if y is not None), None)
    return Series(
        name=name,
        xs=tuple(x for x, _ in thinned),
        ys=tuple(y for _, y in thinned),
        hue=hue,
        last=fit(show(newest), 16),
    )


Point = tuple[float, float | None]


def thin(points: Sequence[Point], buckets: int) -> list[Point]:
    """Return at most two points a bucket, the lowest and highest of it, in order of time.

    A bucket in which nothing is known stays one gap, so that a gap is never drawn over.

    Args:
        points: in order of time.
        buckets: at least 1.
    """
    if len(points) <= 2 * buckets:
        return list(points)
    kept: list[Point] = []
    for index in range(buckets):
        bucket = points[index * len(points) // buckets : (index + 1) * len(points) // buckets]
        known = [place for place, (_, y) in enumerate(bucket) if y is not None]
        if not known:
            kept.append(bucket[0])
            continue
        low = min(known, key=lambda place: bucket[place][1] or 0.0)
        high = max(known, key=lambda place: bucket[place][1] or 0.0)
        kept.extend(bucket[place] for place in sorted({low, high}))
    return kept


def _x_range(shown: Sequence[WindowRecord]) -> tuple[float, float]:
    if not shown:
        return 0.0, 1.0
    low, high = shown[0].uptime_s, shown[-1].uptime_s
    return (low, high) if high > low else (low, low + 1.0)


def _y_range(series: Sequence[Series], *, from_zero: bool) -> tuple[float, float]:
    known = [y for one in series for y in one.ys if y is not None]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    if from_zero:
        low = min(0.0, low)
    if high > low:
        return low, high
    room = abs(low) * 0.1 or 1.0
    return low - room, high + room
