"""Which waits become events and log lines: all that are new, few of those that come again.

The status document and the headless output show every wait above five seconds. A run of
slow steps has such waits in every window, for days; as events they would push out what
matters. So a wait of one sort is told at once, then at most after a minute, two, four …;
but one that has passed half of its ceiling is always told, once.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from flodl_core.telemetry.state import WaitState
from flodl_core.units import Seconds

FIRST_PAUSE_S: Final = 60.0
LONGEST_PAUSE_S: Final = 3600.0
_MOST_SORTS: Final = 4096
_NUMBERS: Final = re.compile(r"\d+")

Sort = tuple[int | None, str | None, str]


class WaitTeller:
    """Reads each document for its waits.

    Args:
        tell: takes a wait that is worth a line.
    """

    def __init__(self, tell: Callable[[WaitState], None]) -> None:
        self._tell = tell
        self._next: dict[Sort, tuple[Seconds, Seconds]] = {}
        self._long: set[Sort] = set()

    def read(self, waits: Sequence[WaitState], now: Seconds) -> None:
        """Tell what is to be told of the waits of a document."""
        long: set[Sort] = set()
        for wait in waits:
            sort = (wait.rank, wait.host, _NUMBERS.sub("#", wait.phase))
            is_long = wait.ceiling_s is not None and wait.age_s >= wait.ceiling_s / 2
            if is_long:
                long.add(sort)
            if self._is_due(sort, now) or (is_long and sort not in self._long):
                self._tell(wait)
        self._long = long

    def _is_due(self, sort: Sort, now: Seconds) -> bool:
        due_s, pause_s = self._next.get(sort, (now, FIRST_PAUSE_S))
        if now < due_s:
            return False
        if len(self._next) >= _MOST_SORTS:
            self._next.clear()
        self._next[sort] = (now + pause_s, min(2 * pause_s, LONGEST_PAUSE_S))
        return True
