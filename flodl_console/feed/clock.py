"""The one clock of the feeds: what they wait on, and what tests replace.

What it is: a protocol of three methods and its real form.
What it is not: the wall clock; instants here are monotonic seconds.
Who drives it: live, replay and demo feeds.
"""

from contextlib import AbstractContextManager
from typing import Protocol

import anyio

from flodl_core.net import clock
from flodl_core.units import Seconds


class FeedClock(Protocol):
    """Time, as a feed sees it."""

    def now(self) -> Seconds:
        """Return the monotonic instant, in seconds."""

    async def wait(self, event: anyio.Event, limit_s: Seconds | None) -> None:
        """Return when the event is set, or after so many seconds; None waits for the event."""

    def limit(self, limit_s: Seconds) -> AbstractContextManager[object]:
        """Return a block that is cut after so many seconds.

        Raises:
            TimeoutError: on leaving, where it was cut.
        """


class RealClock:
    """The machine's own clock."""

    def now(self) -> Seconds:
        """Return the monotonic instant, in seconds."""
        return clock.now()

    async def wait(self, event: anyio.Event, limit_s: Seconds | None) -> None:
        """Return when the event is set, or after so many seconds; None waits for the event."""
        with anyio.move_on_after(limit_s):
            await event.wait()

    def limit(self, limit_s: Seconds) -> AbstractContextManager[object]:
        """Return a block that is cut after so many seconds.

        Raises:
            TimeoutError: on leaving, where it was cut.
        """
        return anyio.fail_after(limit_s)
