"""The waiting of a plane's own thread: sockets to watch, and calls posted by other threads.

One thread waits here; any other may `post`. A posted call runs in the waiting
thread, in the order of posting, so that what the plane owns needs no lock. Not a
general event loop: no timers, no tasks; the plane says how long it waits.
"""

import selectors
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias, cast

from flodl_core.units import Seconds

Call: TypeAlias = Callable[[], None]

_DRAIN_BYTES = 4096


class Readable(Protocol):
    """Anything with a descriptor to watch."""

    def fileno(self) -> int:
        """Return the descriptor."""


class PlaneLoop:
    """Waits for sockets and posted calls."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._posted: deque[Call] = deque()
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.settimeout(0)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)

    def watch(self, readable: Readable, on_readable: Call) -> None:
        """Call `on_readable` in the waiting thread whenever there is something to read."""
        self._selector.register(readable.fileno(), selectors.EVENT_READ, on_readable)

    def forget(self, readable: Readable) -> None:
        """Stop watching; to be called before the descriptor is closed."""
        self._selector.unregister(readable.fileno())

    def post(self, call: Call) -> None:
        """Run `call` in the waiting thread; safe from any thread, without effect once closed."""
        self._posted.append(call)
        self.wake()

    def wake(self) -> None:
        """Make the waiting thread look up; safe from any thread, without effect once closed."""
        try:
            self._wake_writer.send(b"\0")
        except BlockingIOError:
            pass  # a full pipe wakes as well
        except OSError:
            self._posted.clear()

    def wait(self, timeout_s: Seconds) -> None:
        """Wait until something happens, at most `timeout_s`, and run what it calls for."""
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._drain()
            else:
                cast("Call", key.data)()
        self.run_posted()

    def run_posted(self) -> None:
        """Run the calls posted so far, without waiting."""
        while self._posted:
            self._posted.popleft()()

    def close(self) -> None:
        """Release the descriptors; later posts do nothing."""
        self._selector.close()
        self._wake_writer.close()
        self._wake_reader.close()
        self._posted.clear()

    def _drain(self) -> None:
        try:
            while len(self._wake_reader.recv(_DRAIN_BYTES)) == _DRAIN_BYTES:
                pass
        except BlockingIOError:
            return
