"""A bounded inbox that any thread may fill and one task empties.

Data-plane threads and connection tasks post events; the loop that owns a machine
receives them in the order of posting. On overflow `post` refuses: a peer that
floods is cut by its connection's own limits long before.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from flodl_core.errors import LocalProtocolError

T = TypeVar("T")

CAPACITY_EVENTS = 65_536


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """How full the mailbox is and was."""

    depth: int
    peak: int
    posted: int


class Mailbox(Generic[T]):
    """Events for one consumer, first in, first out, across threads."""

    def __init__(self, capacity: int = CAPACITY_EVENTS) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: deque[T] = deque()
        self._wake = asyncio.Event()
        self._capacity = capacity
        self._peak = 0
        self._posted = 0

    def post(self, item: T) -> None:
        """Append `item`; safe from any thread, also after the loop has closed.

        Raises:
            LocalProtocolError: the consumer is `capacity` events behind.
        """
        if len(self._items) >= self._capacity:
            raise LocalProtocolError(
                f"an inbox holds {len(self._items)} events and its consumer does not come"
            )
        self._items.append(item)
        self._posted += 1
        self._peak = max(self._peak, len(self._items))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def call(self, function: Callable[..., None], *arguments: object) -> None:
        """Call `function` on the consumer's loop; safe from any thread, also after its end."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    async def receive(self) -> T:
        """Wait for the oldest item."""
        while not self._items:
            self._wake.clear()
            if self._items:
                break
            await self._wake.wait()
        return self._items.popleft()

    def pop(self) -> T | None:
        """The oldest item, or None if there is none now."""
        return self._items.popleft() if self._items else None

    def statistics(self) -> MailboxStatistics:
        """Depth, peak depth and number of events so far."""
        return MailboxStatistics(depth=len(self._items), peak=self._peak, posted=self._posted)
