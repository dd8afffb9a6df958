"""Bounded memories of a run: its last windows and its last events, numbered.

What it is: rings whose records count up from 1 without a gap, and the pages that
readers get by "since". The oldest are forgotten; a page says which is the oldest kept.
What it is not: a file, or the judge of what is worth an event.
Who drives it: the launcher's history desk adds, HTTP and the recorder read.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final, Generic, TypeVar

from flodl_core.telemetry.records import EventPage, EventRecord, WindowPage, WindowRecord

MAX_WINDOWS: Final = 2_000
MAX_EVENTS: Final = 4_000
MAX_PAGE: Final = 500

RowT = TypeVar("RowT", WindowRecord, EventRecord)


class RecordRing(Generic[RowT]):
    """The last records of one sort.

    Args:
        limit: how many are kept.
    """

    def __init__(self, limit: int) -> None:
        self._rows: deque[RowT] = deque(maxlen=limit)
        self.newest_seq = 0

    @property
    def next_seq(self) -> int:
        """The number of the record to come."""
        return self.newest_seq + 1

    @property
    def oldest_seq(self) -> int:
        """The number of the oldest that is kept; 0 if none was made."""
        return self._rows[0].seq if self._rows else 0

    def add(self, row: RowT) -> RowT:
        """Keep a record that carries `next_seq`; returns it."""
        assert row.seq == self.next_seq, f"record {row.seq} after {self.newest_seq}"
        self._rows.append(row)
        self.newest_seq = row.seq
        return row

    def after(self, since: int, limit: int) -> tuple[RowT, ...]:
        """Return the first `limit` kept records after number `since`, oldest first."""
        skip = max(0, since - self.oldest_seq + 1) if self._rows else 0
        return tuple(islice(self._rows, skip, skip + limit))


def window_page(ring: RecordRing[WindowRecord], since: int, limit: int = MAX_PAGE) -> WindowPage:
    """Return the page of windows after number `since`."""
    return WindowPage(
        oldest_seq=ring.oldest_seq,
        newest_seq=ring.newest_seq,
        records=ring.after(since, limit),
    )


def event_page(ring: RecordRing[EventRecord], since: int, limit: int = MAX_PAGE) -> EventPage:
    """Return the page of events after number `since`."""
    return EventPage(
        oldest_seq=ring.oldest_seq,
        newest_seq=ring.newest_seq,
        records=ring.after(since, limit),
    )


def last_rows(rows: Iterable[RowT], limit: int) -> tuple[RowT, ...]:
    """Return the last `limit` of records, oldest first."""
    return tuple(deque(rows, maxlen=limit))
