"""What waits to be written to a MUX connection: two bounded queues, messages before bucket pieces.

Any thread puts in; one sender thread takes out. Messages are refused when too
many wait, because an event loop fills that queue and must never block. Buckets
block their producer, because a plane thread fills that one and can wait.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from flodl_core.errors import RemoteProtocolError
from flodl_core.units import MIB, Seconds

MAX_MESSAGES: Final = 4096
MAX_MESSAGE_BYTES: Final = 64 * MIB
MAX_BUCKETS: Final = 8


class LinkClosedError(RemoteProtocolError):
    """The connection has ended; nothing more can be sent."""


class OutboxFullError(RemoteProtocolError):
    """The peer takes its messages too slowly; none may be lost, so the link is of no use."""


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """An encoded message."""

    kind: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class WaitingBucket:
    """A bucket, sealed piece by piece as it is written."""

    pieces: Iterator[list[memoryview]]
    done: Callable[[], None] | None


class MuxOutbox:
    """The two queues of one connection and the end of both."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: deque[WaitingMessage] = deque()
        self._message_bytes = 0
        self._buckets: deque[WaitingBucket] = deque()
        self._is_closed = False
        self._is_writing = False
        self._peak_messages = 0

    def put_message(self, message: WaitingMessage) -> None:
        """Queue a message; never blocks.

        Raises:
            LinkClosedError: the link has ended.
            OutboxFullError: `MAX_MESSAGES` or `MAX_MESSAGE_BYTES` wait already.
        """
        with self._changed:
            self._require_open()
            waiting_bytes = self._message_bytes + len(message.payload)
            if len(self._messages) >= MAX_MESSAGES or waiting_bytes > MAX_MESSAGE_BYTES:
                raise OutboxFullError(
                    f"{len(self._messages)} messages of {self._message_bytes} bytes wait to be "
                    "sent and the peer takes none",
                    fix="look at the peer's load and at the network between the two hosts.",
                )
            self._messages.append(message)
            self._message_bytes = waiting_bytes
            self._peak_messages = max(self._peak_messages, len(self._messages))
            self._changed.notify_all()

    def put_bucket(self, bucket: WaitingBucket) -> None:
        """Queue a bucket; blocks while `MAX_BUCKETS` wait.

        Raises:
            LinkClosedError: the link has ended, also while waiting.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._buckets) < MAX_BUCKETS)
            self._require_open()
            self._buckets.append(bucket)
            self._changed.notify_all()

    def take(self, most_bytes: int) -> list[WaitingMessage] | WaitingBucket | None:
        """Wait for something to write.

        Args:
            most_bytes: messages are taken together while they fit in this many.

        Returns:
            Messages in order; or, if none waits, the bucket in front, which
            stays in front until `finish_bucket`; or None at the end.
        """
        with self._changed:
            self._is_writing = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_closed or self._messages or self._buckets)
            if self._is_closed:
                return None
            self._is_writing = True
            if not self._messages:
                return self._buckets[0]
            return self._take_messages(most_bytes)

    def finish_bucket(self) -> None:
        """Take the bucket in front out: all of it is written."""
        with self._changed:
            if self._buckets:
                self._buckets.popleft()
            self._changed.notify_all()

    def wait_empty(self, most_s: Seconds) -> bool:
        """Wait until all that was queued is written; False if `most_s` passed first."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (
                    self._is_closed or not (self._messages or self._buckets or self._is_writing)
                ),
                most_s,
            )

    def close(self) -> None:
        """Refuse everything from here on and free whoever waits; what waits is dropped."""
        with self._changed:
            self._is_closed = True
            self._messages.clear()
            self._buckets.clear()
            self._message_bytes = 0
            self._changed.notify_all()

    @property
    def waiting_messages(self) -> int:
        """Messages that wait now."""
        return len(self._messages)

    @property
    def peak_messages(self) -> int:
        """The most messages that ever waited."""
        return self._peak_messages

    def _take_messages(self, most_bytes: int) -> list[WaitingMessage]:
        taken = [self._messages.popleft()]
        total = len(taken[0].payload)
        while self._messages and total + len(self._messages[0].payload) <= most_bytes:
            taken.append(self._messages.popleft())
            total += len(taken[-1].payload)
        self._message_bytes -= total
        return taken

    def _require_open(self) -> None:
        if self._is_closed:
            raise LinkClosedError(
                "the connection to the other host has ended",
                fix="look at that host's log; its ranks are lost to this run.",
            )
