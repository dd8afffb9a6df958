"""When waiting becomes an outcome: a moment, a limit, and the instant they make.

What it is: the one place that compares an age with a ceiling, so that "past the
ceiling" and "due at" agree to the last bit.
What it is not: a timer.
Who drives it: every part of the coordinator that waits.
"""

import math
from dataclasses import dataclass

from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Waiting since `since_s`, for at most `limit_s`; an age equal to the limit is inside it."""

    since_s: Seconds
    limit_s: Seconds

    def passed(self, now: Seconds) -> bool:
        """Whether the age is above the limit."""
        return now > self.since_s + self.limit_s

    def due(self) -> Seconds:
        """The first instant at which it has passed."""
        return math.nextafter(self.since_s + self.limit_s, math.inf)

    def age(self, now: Seconds) -> Seconds:
        """How long the wait has lasted, never negative."""
        return max(0.0, now - self.since_s)


def earliest(*instants: Seconds | None) -> Seconds | None:
    """The earliest of the instants that are not None."""
    known = [instant for instant in instants if instant is not None]
    return min(known) if known else None
