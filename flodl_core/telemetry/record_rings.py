"""Bounded memories of a run: its last windows and its last events, numbered.

What it is: rings of encoded records that count up from 1 without a gap, bounded in number
and in bytes, and the pages that readers get by "since". The oldest are forgotten; a page
says which is the oldest kept.
What it is not: a file, or the judge of what is worth a record.
Who drives it: the launcher's history adds, HTTP reads.
"""

import json
from collections import deque
from itertools import islice
from typing import Final

from flodl_core.errors import LocalProtocolError
from flodl_core.telemetry.records import RECORDS_VERSION
from flodl_core.units import MIB

MAX_WINDOWS: Final = 2_000
MAX_EVENTS: Final = 4_000
MAX_RING_BYTES: Final = 16 * MIB
MAX_PAGE: Final = 500
MAX_PAGE_BYTES: Final = 1 * MIB
"""A page ends here, but holds one record at least."""


class RecordRing:
    """The last records of one sort, as JSON.

    Args:
        limit: how many are kept.
        limit_bytes: of all of them together; the newest is kept whatever its size.
    """

    def __init__(self, limit: int, *, limit_bytes: int = MAX_RING_BYTES) -> None:
        self._rows: deque[bytes] = deque()
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self.newest_seq = 0

    @property
    def next_seq(self) -> int:
        """The number of the record to come."""
        return self.newest_seq + 1

    @property
    def oldest_seq(self) -> int:
        """The number of the oldest that is kept; 0 if none was made."""
        return self.newest_seq - len(self._rows) + 1 if self._rows else 0

    def add(self, seq: int, row: bytes) -> None:
        """Keep a record.

        Args:
            seq: that stands in it; `next_seq`.
            row: one object of JSON.

        Raises:
            LocalProtocolError: it is not the next one.
        """
        if seq != self.next_seq:
            raise LocalProtocolError(f"record {seq} was made after {self.newest_seq}")
        self.newest_seq = seq
        self._rows.append(row)
        self._bytes += len(row)
        while len(self._rows) > self._limit or (
            self._bytes > self._limit_bytes and len(self._rows) > 1
        ):
            self._bytes -= len(self._rows.popleft())

    def page(self, since: int, limit: int = MAX_PAGE) -> bytes:
        """Return the kept records after number `since`, oldest first, as a page of JSON.

        Args:
            since: 0 for the oldest ones.
            limit: how many at most; never more than MAX_PAGE.
        """
        skip = max(0, since - self.oldest_seq + 1) if self._rows else 0
        rows: list[bytes] = []
        size = 0
        for row in islice(self._rows, skip, skip + min(limit, MAX_PAGE)):
            size += len(row)
            if rows and size > MAX_PAGE_BYTES:
                break
            rows.append(row)
        head = json.dumps(
            {
                "version": RECORDS_VERSION,
                "oldest_seq": self.oldest_seq,
                "newest_seq": self.newest_seq,
            }
        )
        return b'%s, "records": [%s]}' % (head[:-1].encode(), b", ".join(rows))
