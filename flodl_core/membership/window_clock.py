"""How old a window is, and when its next limit comes.

What it is: arithmetic on instants, in one place because rounding bites here:
`now - opened` can be below a limit that `opened + limit` says is reached.
What it is not: a clock; `now` is given.
Who drives it: `MembershipLedger`.
"""

import math
from dataclasses import dataclass

from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowClock:
    """The window's two limits, and the instant it opened; None before that."""

    window_s: Seconds
    cap_s: Seconds
    opened_at: Seconds | None = None

    def waited_s(self, now: Seconds) -> Seconds:
        """Return the age of the window, on the same side of each limit as the instants are."""
        if self.opened_at is None:
            return 0.0
        waited_s = max(0.0, now - self.opened_at)
        for limit_s in (self.window_s, self.cap_s):
            if now >= self.opened_at + limit_s:
                waited_s = max(waited_s, limit_s)
            else:
                waited_s = min(waited_s, math.nextafter(limit_s, 0.0))
        return waited_s

    def next_due(self, now: Seconds) -> Seconds | None:
        """Return the first limit that is later than `now`."""
        if self.opened_at is None:
            return None
        limits = (self.opened_at + self.window_s, self.opened_at + self.cap_s)
        return min((limit for limit in limits if limit > now), default=None)

    def window_left_s(self, now: Seconds) -> Seconds | None:
        """Return what is left of the window, None once past."""
        return _left(self.window_s, self.waited_s(now))

    def cap_left_s(self, now: Seconds) -> Seconds | None:
        """Return what is left of the hard cap, None once past."""
        return _left(self.cap_s, self.waited_s(now))


def _left(total_s: Seconds, waited_s: Seconds) -> Seconds | None:
    return total_s - waited_s if waited_s < total_s else None
