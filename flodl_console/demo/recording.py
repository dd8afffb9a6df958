"""A scenario as if it had been recorded: documents, windows and events by the time.

What it is: a pure function of script and time, with the face of a recorded run.
What it is not: a file, or a feed; `feed.demo` plays it.
Who drives it: the demo feed, tests, screenshots.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from flodl_console.demo.document import compose_document
from flodl_console.demo.happenings import tell
from flodl_console.demo.history import window_record
from flodl_console.demo.numbers import Numbers
from flodl_console.demo.schedule import Schedule
from flodl_console.demo.script import Script
from flodl_core.telemetry.records import EventPage, WindowPage, WindowRecord
from flodl_core.telemetry.state import StateDocument
from flodl_core.units import Seconds

DOCUMENT_EVERY_S: Final = 0.5
KEPT_WINDOWS: Final = 2000
KEPT_EVENTS: Final = 4000
KEPT_ROWS: Final = 128_000
"""Windows times ranks: a large world keeps fewer windows."""


class DemoRun:
    """One scenario's whole course.

    Attributes:
        name: of the scenario.
        length_s: seconds from the start of the run to the end of the scenario.
        begin_s: where a playback starts.
        showcase_s: an instant that shows what the scenario is about.
        missing: what is not in the record: nothing.
    """

    def __init__(self, script: Script) -> None:
        self.name = script.name
        self.missing: tuple[str, ...] = ()
        self.length_s = script.length_s
        self.begin_s = script.begin_s
        self.showcase_s = script.showcase_s
        self._schedule = Schedule(script)
        self._numbers = Numbers(script, self._schedule)
        self._events = tell(self._numbers)
        self._event_times = [event.uptime_s for event in self._events]
        count = int(self.length_s / DOCUMENT_EVERY_S) + 1
        self._times = [index * DOCUMENT_EVERY_S for index in range(count)]
        ranks = max(1, len(script.cohort.ranks))
        self._kept_windows = min(KEPT_WINDOWS, max(100, KEPT_ROWS // ranks))
        self._window = lru_cache(maxsize=self._kept_windows)(self._make_window)

    def times(self) -> Sequence[Seconds]:
        """Return when a document was published, in seconds since the start."""
        return self._times

    def document_at(self, position_s: Seconds) -> StateDocument:
        """Return the document of an instant, clamped to the scenario's length."""
        at_s = min(max(position_s, 0.0), self.length_s)
        return compose_document(self._numbers, self._events[: self._events_by(at_s)], at_s)

    def windows_until(self, position_s: Seconds, *, since: int = 0) -> WindowPage:
        """Return the windows that have ended by then, as far as they are kept.

        Args:
            position_s: seconds since the start.
            since: leave out those up to this sequence number.
        """
        newest = self._schedule.finished(position_s)
        oldest = max(1, newest - self._kept_windows + 1) if newest else 0
        first = max(since + 1, oldest)
        records = tuple(self._window(seq - 1) for seq in range(first, newest + 1) if seq)
        return WindowPage(oldest_seq=oldest, newest_seq=newest, records=records)

    def events_until(self, position_s: Seconds, *, since: int = 0) -> EventPage:
        """Return the events by then, as far as they are kept; `since` as for windows."""
        newest = self._events_by(position_s)
        oldest = max(1, newest - KEPT_EVENTS + 1) if newest else 0
        first = max(since + 1, oldest, 1)
        return EventPage(
            oldest_seq=oldest, newest_seq=newest, records=self._events[first - 1 : newest]
        )

    def _events_by(self, at_s: Seconds) -> int:
        return bisect_right(self._event_times, at_s)

    def _make_window(self, index: int) -> WindowRecord:
        return window_record(self._numbers, index)
