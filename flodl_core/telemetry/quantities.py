"""Numbers as people read them; None is always "–".

Pure functions for lines, tables and summaries. Nothing here is parsed again:
machines read the JSON documents.
"""

from typing import Final

ABSENT: Final = "–"

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def show_duration(seconds: float | None) -> str:
    """Return 0.4s, 12s, 3m05s or 2h07m."""
    if seconds is None:
        return ABSENT
    if seconds < 0:
        return "0s"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def show_number(value: float | None, *, digits: int = 4) -> str:
    """Return a number with `digits` significant ones, without an exponent where it is short."""
    if value is None:
        return ABSENT
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    return text if "e" not in text or abs(value) < 1e-4 or abs(value) >= 1e9 else f"{value:,.0f}"


def show_count(value: int | None) -> str:
    """Return an integer with separators for thousands."""
    return ABSENT if value is None else f"{value:,}"


def show_rate(per_second: float | None) -> str:
    """Return a rate with at least two significant digits."""
    if per_second is None:
        return ABSENT
    return f"{per_second:,.0f}" if abs(per_second) >= 100 else f"{per_second:.3g}"


def show_percent(fraction: float | None) -> str:
    """Return a part of one as a percentage."""
    return ABSENT if fraction is None else f"{100 * fraction:.1f}%"


def show_bytes(nbytes: int | None) -> str:
    """Return a size in binary units."""
    if nbytes is None:
        return ABSENT
    value, unit = float(nbytes), 0
    while value >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{nbytes} B" if unit == 0 else f"{value:.3g} {_SIZES[unit]}"


def show_age(age_s: float | None, ceiling_s: float | None) -> str:
    """Return an age beside its ceiling, such as 12s/5m00s."""
    if ceiling_s is None:
        return show_duration(age_s)
    return f"{show_duration(age_s)}/{show_duration(ceiling_s)}"


def plural(count: int, noun: str, *, many: str = "") -> str:
    """Return the count and its noun, as `many` or with an s where it needs one."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {many or noun + 's'}"
