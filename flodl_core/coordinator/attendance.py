"""The time in which the coordinator was there: its ceilings run on this clock only.

What it is: monotonic time less the stretches in which nobody drove the machine,
because its process was stopped or its machine slept. While it was away it could hear
nobody, so nobody's silence counts, and no wait grew old.
What it is not: a clock; instants come in with each event.
Who drives it: `coordinator.machine`.
"""

import math

from flodl_core.units import Seconds

MISSED_BEACONS = 5
"""A gap of more than this many beacons is an absence."""


class Attendance:
    """Turns given instants into attended ones, and back.

    Args:
        beacon_s: the longest time between two events of a machine that is driven.
    """

    def __init__(self, beacon_s: Seconds) -> None:
        self._longest_s = MISSED_BEACONS * beacon_s
        self._absent_s: Seconds = 0.0
        self._last: Seconds | None = None

    def arrive(self, now: Seconds) -> Seconds:
        """An event came at `now`; return how long the machine was away before it, mostly 0."""
        gap = 0.0 if self._last is None else now - self._last
        self._last = now
        if gap <= self._longest_s:
            return 0.0
        self._absent_s += gap
        return gap

    def attended(self, now: Seconds) -> Seconds:
        """The attended instant of a given one."""
        return now - self._absent_s

    def given(self, attended: Seconds) -> Seconds:
        """The given instant of an attended one, later than the last event."""
        instant = attended + self._absent_s
        if self._last is None or instant > self._last:
            return instant
        return math.nextafter(self._last, math.inf)
