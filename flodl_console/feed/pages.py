"""What is new of windows and events, page by page, as much at a time as the road carries.

What it is: two places in a run's history. A page that is too slow or too large is asked for
in halves; one that fails in another way is tried again later.
What it is not: the road; a page that fails says nothing of the run's document.
Who drives it: `feed.live`, after each document.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeAlias

from flodl_console.feed.clock import FeedClock
from flodl_console.feed.retries import Retries
from flodl_console.feed.run_port import NotServedError, PortFaultError, RunPort, TooHeavyError
from flodl_console.view.records import EventsArrived, PagesChanged, Record, WindowsArrived
from flodl_core.errors import RemoteProtocolError
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.telemetry.records import (
    EventPage,
    WindowPage,
    read_event_page_untrusted,
    read_window_page_untrusted,
)
from flodl_core.telemetry.state import StateDocument
from flodl_core.units import Seconds

PAGE_S: Final = 1.25
"""How long a page may take. Two of them and a document come before a view is called stale."""

ROUND_S: Final = 0.5
"""After so long no page is begun before the document has been read again."""

MAX_PAGE_RECORDS: Final = 500
MIN_PAGE_RECORDS: Final = 10
PAGE_CELLS: Final = 40_000
"""Windows of a page times ranks: a page of a large world stays far below the largest body."""

_Arrived: TypeAlias = WindowsArrived | EventsArrived


class _Place:
    """How far one kind of record was read."""

    def __init__(self, path: str, read: Callable[[bytes, Seconds], _Arrived]) -> None:
        self.path, self.read = path, read
        self.seen = 0
        self.limit = MAX_PAGE_RECORDS
        self.fault = ""
        """Why the last page failed; empty if it did not, or if a smaller one may come."""
        self._retries = Retries()
        self._due_s: Seconds | None = None
        self._is_served = True

    def wants(self, newest_seq: int, now_s: Seconds) -> bool:
        """Return whether there is something new, and it is time to ask for it."""
        is_due = self._due_s is None or now_s >= self._due_s
        return self._is_served and is_due and newest_seq > self.seen

    def take(self, arrived: _Arrived, *, asked: int, took_s: Seconds) -> None:
        """Go on after a page; a full one that came fast may be twice as long.

        Raises:
            RemoteProtocolError: it holds nothing newer, so that reading would not end.
        """
        records = arrived.page.records
        self.seen = _last_seq(self.seen, arrived.page)
        if len(records) >= asked and took_s < PAGE_S / 4:
            self.limit = min(MAX_PAGE_RECORDS, 2 * asked)
        self.fault, self._due_s = "", None
        self._retries.succeed()

    def give_up(self) -> None:
        """Ask no more: the run has no such path."""
        self._is_served = False

    def fail(self, fault: PortFaultError | RemoteProtocolError, now_s: Seconds) -> None:
        """Wait, longer each time, before the next page."""
        self.fault = show_untrusted(fault.happened)
        self._due_s = now_s + self._retries.fail()


class PageReader:
    """Reads the history of one run.

    Args:
        port: of the run.
        clock: what pages and pauses are measured by.

    Attributes:
        is_behind: whether the last round ended although more could be read at once.
    """

    def __init__(self, port: RunPort, clock: FeedClock) -> None:
        self.is_behind = False
        self._port, self._clock = port, clock
        self._events = _Place("/events", _read_events)
        self._windows = _Place("/history", _read_windows)
        self._told = ""

    async def news(self, document: StateDocument) -> AsyncGenerator[Record, None]:
        """Yield what a document tells of and is not known yet, events first, for a short time.

        Faults are records too; nothing is raised.
        """
        self.is_behind = False
        until_s = self._clock.now() + ROUND_S
        rows = max(MIN_PAGE_RECORDS, PAGE_CELLS // max(1, len(document.ranks)))
        for place, newest_seq, most in (
            (self._events, document.newest_event_seq, MAX_PAGE_RECORDS),
            (self._windows, document.newest_window_seq, rows),
        ):
            while place.wants(newest_seq, self._clock.now()):
                arrived = await self._read(place, min(place.limit, most))
                if arrived is None:
                    break
                yield arrived
                if not arrived.page.records:
                    break
                if self._clock.now() >= until_s:
                    self.is_behind = self.is_behind or newest_seq > place.seen
                    break
        fault = self._events.fault or self._windows.fault
        if fault != self._told:
            self._told = fault
            yield PagesChanged(detail=fault, at_s=self._clock.now())

    async def _read(self, place: _Place, asked: int) -> _Arrived | None:
        """Return the next page; None if it did not come."""
        began_s = self._clock.now()
        try:
            body = await self._port.read(place.path, PAGE_S, since=place.seen, limit=asked)
            now_s = self._clock.now()
            arrived = place.read(body, now_s)
            place.take(arrived, asked=asked, took_s=now_s - began_s)
        except NotServedError:
            place.give_up()
        except TooHeavyError as fault:
            if asked > MIN_PAGE_RECORDS:
                place.limit = max(MIN_PAGE_RECORDS, asked // 2)
                self.is_behind = True
            else:
                place.fail(fault, self._clock.now())
        except (PortFaultError, RemoteProtocolError) as fault:
            place.fail(fault, self._clock.now())
        else:
            return arrived
        return None


def _read_windows(body: bytes, at_s: Seconds) -> WindowsArrived:
    return WindowsArrived(page=read_window_page_untrusted(body), at_s=at_s)


def _read_events(body: bytes, at_s: Seconds) -> EventsArrived:
    return EventsArrived(page=read_event_page_untrusted(body), at_s=at_s)


def _last_seq(seen: int, page: WindowPage | EventPage) -> int:
    """Return the newest record that is known after a page.

    Raises:
        RemoteProtocolError: the page holds nothing newer, so that reading would not end.
    """
    if not page.records:
        return seen
    last_seq = page.records[-1].seq
    if last_seq <= seen:
        raise RemoteProtocolError(
            f"a page of records after {seen} ends at {last_seq}",
            fix="use the flodl version of the run",
        )
    return last_seq
