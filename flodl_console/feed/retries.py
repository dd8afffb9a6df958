"""How long to wait after a failure: longer each time, up to a limit.

What it is: a count of failures in a row, and the pause that it stands for.
What it is not: a clock; it waits for nothing.
Who drives it: `feed.live` for documents, `feed.pages` for pages.
"""

from typing import Final

from flodl_core.units import Seconds

FIRST_S: Final = 0.5
LAST_S: Final = 10.0
_MOST_DOUBLINGS: Final = 10


class Retries:
    """The failures in a row of one thing that is asked for.

    Attributes:
        failures: in a row; it stops counting where the pause has long been the longest.
    """

    def __init__(self) -> None:
        self.failures = 0

    def succeed(self) -> None:
        """Begin anew."""
        self.failures = 0

    def fail(self) -> Seconds:
        """Count a failure, and return how long to wait."""
        pause_s = min(FIRST_S * 2.0**self.failures, LAST_S)
        self.failures = min(self.failures + 1, _MOST_DOUBLINGS)
        return pause_s
