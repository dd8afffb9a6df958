"""Between a rank's training thread and its bridge: reports and messages both ways.

```
training thread                                 bridge
report_batch ─▶ ring of 1024 rows ─┐
post ─▶ outgoing messages ─────────┴─▶ drain ─▶ coordinator
receive ◀─ inbox ◀───────────────────── deliver ◀─ coordinator
```

A batch report costs the training thread one write into the ring; the bridge turns
rows into one Batches message at most every 50 ms, or at once when it is woken.
`drain` gives rows and messages in the order in which the training thread made them.
One training thread and one bridge use it; it knows no sockets.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flodl_core.errors import LocalProtocolError, RunLostError
from flodl_core.ids import Rank, RankPhase
from flodl_core.messages.timing import Batch, Batches
from flodl_core.net import clock
from flodl_core.units import Seconds

RING_ROWS = 1024
"""Batch reports that may wait for the bridge."""

COALESCE_S = 0.05
"""Longest time that a row waits while the bridge lives."""

INBOX_MESSAGES = 4096

Row = tuple[float, float, float, int, int, float | None, Seconds]
"""batch_ms, data_ms, since_previous_ms, step_count, samples, loss, when it was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatistics:
    """How the channel fared."""

    rows_written: int
    rows_waiting: int
    full_waits: int
    """Times that the training thread had to wait for the bridge."""
    inbox_depth: int


class RankChannel:
    """The two ends' meeting place.

    Attributes:
        step_count: batches of this rank since it began; read by the bridge for Heartbeat.
        activity: what it does in its phase; likewise. Empty if nothing is to say.
    """

    def __init__(
        self,
        rank: Rank,
        *,
        capacity_rows: int = RING_ROWS,
        now: Callable[[], Seconds] = clock.now,
    ) -> None:
        self.rank = rank
        self._now = now
        self._phase = RankPhase.SPAWNING
        self._phase_since = self._now()
        self.step_count = 0
        self.activity = ""
        self._heed: Callable[[object], None] | None = None
        self._capacity = capacity_rows
        self._rows: list[Row | None] = [None] * capacity_rows
        self._written = 0
        self._drained = 0
        self._full_waits = 0
        self._outgoing: deque[tuple[int, object]] = deque()
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._room = threading.Event()
        self._lost: str | None = None
        self._wake: Callable[[], None] = _nothing
        self._woken = False

    @property
    def phase(self) -> RankPhase:
        """What the training thread is doing."""
        return self._phase

    @phase.setter
    def phase(self, phase: RankPhase) -> None:
        if phase is not self._phase:
            self._phase_since = self._now()
            self._phase = phase

    @property
    def phase_s(self) -> Seconds:
        """How long it has been doing that."""
        return self._now() - self._phase_since

    # -- the training thread -------------------------------------------------------

    def report_batch(self, row: Row) -> None:
        """Write one batch report; waits only while the ring is full.

        Raises:
            RunLostError: the ring is full and the bridge is gone.
        """
        if self._written - self._drained >= self._capacity:
            self._wait_for_room()
        self._rows[self._written % self._capacity] = row
        self.step_count = row[3]
        self._written += 1

    def flush(self) -> None:
        """Have the rows written so far sent at once, such as at the end of a window."""
        if self._written != self._drained:
            self._call_bridge()

    def post(self, message: object) -> None:
        """Send a message to the coordinator, after every row written before it."""
        self._outgoing.append((self._written, message))
        self._call_bridge()

    def receive(self, timeout_s: Seconds) -> object | None:
        """Return the oldest message of the coordinator; None if none came in time.

        Raises:
            RunLostError: the coordinator is gone and no message is left.
        """
        try:
            return self._take(self._inbox.get(timeout=timeout_s))
        except queue.Empty:
            return None

    @property
    def has_mail(self) -> bool:
        """Whether a message of the coordinator waits to be received."""
        return not self._inbox.empty()

    def poll(self) -> object | None:
        """Return the oldest message of the coordinator; None if there is none now.

        Raises:
            RunLostError: the coordinator is gone and no message is left.
        """
        try:
            return self._take(self._inbox.get_nowait())
        except queue.Empty:
            return None

    # -- the bridge ----------------------------------------------------------------

    def on_outgoing(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, from the training thread, when something should go at once.

        It is called once between two drains; it must not block.
        """
        self._wake = wake
        if self._outgoing or self._woken:
            wake()

    def heed_with(self, heed: Callable[[object], None]) -> None:
        """Have every message shown to `heed` as it arrives, in the bridge, and None at the end.

        It must not block.
        """
        self._heed = heed

    def deliver(self, message: object) -> None:
        """Hand a message of the coordinator to the training thread.

        Raises:
            LocalProtocolError: the training thread is thousands of messages behind.
        """
        if self._inbox.qsize() >= INBOX_MESSAGES:
            raise LocalProtocolError(
                f"rank {self.rank} has {INBOX_MESSAGES} messages that it did not take"
            )
        if self._heed is not None:
            self._heed(message)
        self._inbox.put(message)

    def close(self, reason: str) -> None:
        """Say that nothing will come or go any more; the training thread gets RunLostError."""
        self._lost = reason
        if self._heed is not None:
            self._heed(None)
        self._inbox.put(None)
        self._room.set()

    def drain(self) -> list[object]:
        """Take everything that waits: messages, with the rows between them as Batches."""
        self._woken = False
        written = self._written
        taken: list[object] = []
        for _ in range(len(self._outgoing)):
            mark, message = self._outgoing.popleft()
            self._take_rows(mark, taken)
            taken.append(message)
        self._take_rows(written, taken)
        self._room.set()
        return taken

    def statistics(self) -> ChannelStatistics:
        """Return counts; exact only for the thread that changes them."""
        return ChannelStatistics(
            rows_written=self._written,
            rows_waiting=self._written - self._drained,
            full_waits=self._full_waits,
            inbox_depth=self._inbox.qsize(),
        )

    def _take_rows(self, mark: int, taken: list[object]) -> None:
        if mark <= self._drained:
            return
        now = done_at = self._now()
        batches = []
        for index in range(self._drained, mark):
            row = self._rows[index % self._capacity]
            assert row is not None, "the cursor is stored after its row"
            batch_ms, data_ms, since_previous_ms, step_count, samples, loss, done_at = row
            batches.append(
                Batch(
                    batch_ms=batch_ms,
                    data_ms=data_ms,
                    since_previous_ms=since_previous_ms,
                    step_count=step_count,
                    samples=samples,
                    loss=loss,
                )
            )
        self._drained = mark
        age_ms = max(0.0, now - done_at) * 1e3
        taken.append(Batches(rank=self.rank, rows=tuple(batches), age_ms=age_ms))

    def _call_bridge(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake()

    def _wait_for_room(self) -> None:
        self._full_waits += 1
        while self._written - self._drained >= self._capacity:
            if self._lost is not None:
                raise RunLostError(self._lost)
            self._room.clear()
            self._call_bridge()
            if self._written - self._drained >= self._capacity:
                self._room.wait(COALESCE_S)

    def _take(self, message: object | None) -> object:
        if message is None:
            self._inbox.put(None)
            raise RunLostError(self._lost or "the coordinator is gone")
        return message


def _nothing() -> None:
    return None
