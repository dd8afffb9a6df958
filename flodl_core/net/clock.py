"""The one place that reads a clock.

`now` is monotonic and is what every ceiling is measured on; it never crosses the
wire, because two hosts' monotonic clocks share nothing. `utc_iso` and `utc_s` are for
people: logs, records, files and the comparison of two hosts' clocks, never for
deciding. Roles read the clock here and hand `now` to the machines as an argument.
"""

import time
from datetime import UTC, datetime

from flodl_core.units import Seconds


def now() -> Seconds:
    """Return the monotonic instant, in seconds since an arbitrary start."""
    return time.monotonic()


def utc_iso() -> str:
    """Return the wall clock as `2026-01-31T12:00:00.123Z`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_s() -> Seconds:
    """Return the wall clock in seconds since 1970."""
    return time.time()
