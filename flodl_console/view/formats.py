"""Numbers as the console shows them, each with its unit and a bounded width.

What it is: pure functions; None and what is not finite is always ABSENT.
What it is not: the formats of plain lines (`telemetry.quantities`), which are not bounded.
Who drives it: every panel.
"""

import math
import re
from collections.abc import Iterable
from typing import Final

ABSENT: Final = "–"

_SCALES: Final = ("", "k", "M", "G", "T", "P", "E")
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_CLOCK: Final = re.compile(r"T(\d\d:\d\d:\d\d)")
_DAY_S: Final = 86_400
_MAX_DAYS: Final = 9_999
_MAX_PLOTTED: Final = 1e300
"""A drawing reckons with differences and multiples of its values, which must stay finite."""


def finite(value: float | None) -> float | None:
    """Return the value, or None if it is not finite or too large for a float."""
    if value is None:
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def plottable(value: float | None) -> float | None:
    """Return the value, or None if it is not finite or too large to draw with others."""
    shown = finite(value)
    return None if shown is None or abs(shown) > _MAX_PLOTTED else shown


def ratio(part: float, whole: float) -> float | None:
    """Return a part of a whole; None if the whole is 0 or either is too large for a float."""
    top, bottom = finite(part), finite(whole)
    return None if top is None or not bottom else finite(top / bottom)


def duration(seconds: float | None) -> str:
    """Return `0.4 s`, `12 s`, `4 m 12 s`, `2 h 07 m` or `3 d 04 h`; at most 9 cells."""
    value = finite(seconds)
    if value is None:
        return ABSENT
    value = max(0.0, value)
    if value < 9.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < _DAY_S:
        return f"{whole // 3_600} h {whole % 3_600 // 60:02d} m"
    days = whole // _DAY_S
    if days < 100:
        return f"{days} d {whole % _DAY_S // 3_600:02d} h"
    return f"{days} d" if days <= _MAX_DAYS else f">{_MAX_DAYS} d"


def _coarse(seconds: float) -> str:
    if seconds < 999.5:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} m"
    if seconds < 100 * 3_600:
        return f"{seconds / 3_600:.0f} h"
    return f"{seconds / _DAY_S:.0f} d" if seconds < 99 * _DAY_S else ">99 d"


def age_of(age_s: float | None, ceiling_s: float | None, *, is_tight: bool = False) -> str:
    """Return an age beside its ceiling, `3.1 / 30 s`; at most 15 cells.

    Args:
        age_s: negative counts as 0.
        ceiling_s: None if there is none.
        is_tight: `3.1/30 s`, at most 10 cells.
    """
    age, ceiling = finite(age_s), finite(ceiling_s)
    if age is None:
        return ABSENT
    age = max(0.0, age)
    if ceiling is None:
        return duration(age)
    ceiling = max(0.0, ceiling)
    if age < 999.5 and ceiling < 999.5:
        shown = f"{age:.1f}" if age < 99.95 else f"{age:.0f}"
        return f"{shown}{'/' if is_tight else ' / '}{ceiling:.0f} s"
    if is_tight:
        return f"{_coarse(age)}/{_coarse(ceiling)}".replace(" ", "")
    return f"{_coarse(age)} / {_coarse(ceiling)}"


def part_of(age_s: float | None, ceiling_s: float | None) -> float | None:
    """Return an age as a part of its ceiling, 0 to 1; None where one is not known."""
    age, ceiling = finite(age_s), finite(ceiling_s)
    if age is None or ceiling is None or ceiling <= 0:
        return None
    return bounded(age / ceiling)


def bounded(fraction: float) -> float:
    """Return the fraction within 0 and 1."""
    return min(1.0, max(0.0, fraction))


def count(value: int | None, *, width: int = 12) -> str:
    """Return a count with separators, or shortened where that is wider than `width` (≥ 5)."""
    if value is None:
        return ABSENT
    shown = f"{value:,}"
    return shown if len(shown) <= width else compact(value)


def compact(value: float | None) -> str:
    """Return `999`, `12k`, `1.2M`; at most 4 cells, 5 with a minus sign."""
    whole = finite(value)
    if whole is None:
        return ABSENT
    sign, left = ("-" if whole < 0 else ""), abs(whole)
    for scale in _SCALES:
        if left < 999.5:
            shown = f"{left:.1f}" if scale and left < 9.95 else f"{left:.0f}"
            return f"{sign}{shown}{scale}"
        left /= 1_000
    return f"{sign}>1Z"


def number(value: float | None, *, digits: int = 4) -> str:
    """Return a number with `digits` (≥ 2) significant ones; at most `digits` + 6 cells."""
    shown = finite(value)
    if shown is None:
        return ABSENT
    if shown == 0:
        return "0"
    text = f"{shown:.{digits}g}"
    if "e" in text and 1e-4 <= abs(shown) < 1e6:
        return f"{shown:.0f}"
    return text if len(text) <= digits + 6 else f"{shown:.{digits - 1}g}"


def milliseconds(value: float | None) -> str:
    """Return milliseconds without their unit, three digits or more; at most 7 cells."""
    shown = finite(value)
    if shown is None:
        return ABSENT
    if abs(shown) >= 99_999.5:
        return compact(shown)
    if abs(shown) >= 99.95:
        return f"{shown:,.0f}"
    return "0" if abs(shown) < 0.0005 else f"{shown:.{_decimals(shown)}f}"


def _decimals(value: float) -> int:
    size = abs(value)
    return 1 if size >= 9.995 else 2 if size >= 0.9995 else 3


def span_ms(value: float | None) -> str:
    """Return milliseconds as `42 ms` or `3.2 s`; at most 9 cells."""
    shown = finite(value)
    if shown is None:
        return ABSENT
    return f"{milliseconds(shown)} ms" if abs(shown) < 999.5 else duration(shown / 1_000)


def rate(value: float | None) -> str:
    """Return a rate without its unit; at most 7 cells."""
    shown = finite(value)
    if shown is None:
        return ABSENT
    shown = max(0.0, shown)
    if shown >= 99_999.5:
        return compact(shown)
    if shown >= 99.95:
        return f"{shown:,.0f}"
    return "0" if shown < 0.0005 else number(shown, digits=3)


def percent(fraction: float | None) -> str:
    """Return a part of one as `41.2 %`; at most 7 cells."""
    shown = finite(fraction)
    if shown is None:
        return ABSENT
    if shown >= 9.995:
        return ">999 %"
    if 0 < shown < 0.0005:
        return "<0.1 %"
    return f"{100 * max(0.0, shown):.1f} %"


def share_of_100(value: float | None) -> str:
    """Return a percentage that came as 0 to 100, as `41 %`; at most 6 cells."""
    shown = finite(value)
    if shown is None:
        return ABSENT
    return f"{shown:.0f} %" if 0 <= shown < 9_999.5 else ">9k %"


def size(nbytes: float | None) -> str:
    """Return a size in binary units as `12.3 MiB`; at most 9 cells."""
    value = finite(nbytes)
    if value is None:
        return ABSENT
    value = max(0.0, value)
    unit = 0
    while value >= 999.5 and unit < len(_SIZES) - 1:
        value, unit = value / 1_024, unit + 1
    return f"{_three(value)} {_SIZES[unit]}"


def size_of(used_bytes: float | None, total_bytes: float | None) -> str:
    """Return used and whole memory as `3.1/16 GiB`, in the unit of the whole; at most 12 cells."""
    used, total = finite(used_bytes), finite(total_bytes)
    if used is None:
        return ABSENT
    if total is None or total <= 0:
        return size(used)
    whole, unit = size(total).split(" ")
    shown = max(0.0, used) / 1_024 ** _SIZES.index(unit)
    return f"{_three(shown)}/{whole} {unit}"


def _three(value: float) -> str:
    if value >= 999.5:
        return ">1k"
    return f"{value:.1f}".removesuffix(".0") if value < 99.95 else f"{value:.0f}"


def plural(how_many: int, noun: str, *, many: str = "") -> str:
    """Return the count and its noun, as `many` or with an s where it needs one."""
    return f"{count(how_many)} {noun if how_many == 1 else many or noun + 's'}"


def number_ranges(numbers: Iterable[int]) -> str:
    """Return whole numbers as ranges, `0–3, 7`."""
    runs: list[list[int]] = []
    for value in sorted(set(numbers)):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in runs)


def clock_time(instant: str) -> str:
    """Return the time of day of an ISO instant as `14:03:07`, as it was written; 8 cells."""
    found = _CLOCK.search(instant)
    return found[1] if found else ABSENT


def age_at(uptime_s: float, then_s: float | None) -> float | None:
    """Return how long ago something happened; None where that was not written down or is to come.

    Args:
        uptime_s: age of the run now.
        then_s: age of the run when it happened; None where it is not known.
    """
    now, then = finite(uptime_s), finite(then_s)
    return None if now is None or then is None or then > now else finite(now - then)
