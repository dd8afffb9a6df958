"""Bars and sparklines: numbers as cells of text.

What it is: fractions and values in, text of exactly so many cells out; each character has
an ASCII twin of its own in `view.plain`.
What it is not: a choice of numbers, words or colours.
Who drives it: the lines of panels.
"""

from collections.abc import Sequence
from typing import Final

from flodl_console.view.formats import bounded
from flodl_console.view.tones import Line, Phrase, Tone
from flodl_console.view.window import QuorumGauge

FULL: Final = "█"
EMPTY: Final = "░"
MARK: Final = "│"
LEVELS: Final = "▁▂▃▄▅▆▇█"
_MIDDLE: Final = "▄"


def bar(fraction: float, cells: int) -> str:
    """Return a bar; its first cell fills with the first bit, its last only with the whole.

    Args:
        fraction: bounded to 0 … 1.
        cells: 0 or more.
    """
    part = bounded(fraction)
    full = round(cells * part)
    if 0.0 < part < 1.0 and cells > 1:
        full = min(max(1, full), cells - 1)
    return FULL * full + EMPTY * (cells - full)


def quorum_bar(gauge: QuorumGauge, cells: int) -> Line:
    """Return joined ranks as a bar with a mark behind the quorum's last cell.

    Args:
        gauge: of the window.
        cells: 0 or more, the mark among them.
    """
    if cells < 1:
        return ()
    room = cells - 1
    drawn = bar(gauge.joined_ranks / gauge.scale_ranks, room)
    mark = min(room, max(0, round(room * gauge.quorum_ranks / gauge.scale_ranks)))
    parts = (
        Phrase(drawn[:mark], gauge.tone),
        Phrase(MARK, Tone.ACCENT),
        Phrase(drawn[mark:], gauge.tone),
    )
    return tuple(part for part in parts if part.text)


def sparkline(values: Sequence[float | None], cells: int) -> str:
    """Return values as heights between their lowest and highest, the newest at the right end.

    Args:
        values: oldest first, finite; None is a gap. If there are more than cells, each cell
            shows the highest of its part.
        cells: 0 or more; where there are fewer values, the left end stays empty.
    """
    shown = _squeezed(values, cells)
    known = [value for value in shown if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    text = "".join(" " if value is None else _level(value, low, high) for value in shown)
    return text.rjust(cells)


def _squeezed(values: Sequence[float | None], cells: int) -> Sequence[float | None]:
    if len(values) <= cells:
        return values
    parts = [
        values[place * len(values) // cells : (place + 1) * len(values) // cells]
        for place in range(cells)
    ]
    return [max((one for one in part if one is not None), default=None) for part in parts]


def _level(value: float, low: float, high: float) -> str:
    if high <= low:
        return _MIDDLE
    part = (value / 2 - low / 2) / (high / 2 - low / 2)
    return LEVELS[min(len(LEVELS) - 1, int(bounded(part) * len(LEVELS)))]
