"""What waits to be written to one peer, so that no loop ever waits for that peer.

A role puts messages in; one task writes them in order. A peer that lets more
than `CAPACITY_MESSAGES` pile up is cut off: its link closes, which its reader
then sees as the end of that peer.
"""

import asyncio
from collections import deque
from typing import Protocol

import anyio

CAPACITY_MESSAGES = 8192


class MessageSink(Protocol):
    """A link that writes one message at a time."""

    async def send(self, message: object) -> None:
        """Write one message."""
        ...

    async def aclose(self) -> None:
        """Close the link."""
        ...


class LinkOutbox:
    """Messages for one peer; `run` writes them until the link ends or `finish` was called."""

    def __init__(self, sink: MessageSink, *, capacity: int = CAPACITY_MESSAGES) -> None:
        self._sink = sink
        self._waiting: deque[object] = deque()
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._capacity = capacity
        self._is_finishing = False
        self.overflowed = False

    def put(self, message: object) -> None:
        """Queue a message; from the loop's own thread. After an overflow it is dropped."""
        if self.overflowed or self._is_finishing:
            return
        if len(self._waiting) >= self._capacity:
            self.overflowed = True
            self._waiting.clear()
        self._waiting.append(message)
        self._wake.set()

    def finish(self) -> None:
        """Let `run` end once everything queued is written."""
        self._is_finishing = True
        self._wake.set()

    async def flushed(self) -> None:
        """Finish, and wait until `run` has ended."""
        self.finish()
        await self._ended.wait()

    async def run(self) -> None:
        """Write what is queued; ends quietly when the link is gone."""
        try:
            while True:
                while self._waiting and not self.overflowed:
                    await self._sink.send(self._waiting.popleft())
                if self.overflowed:
                    await self._sink.aclose()
                    return
                if self._is_finishing:
                    return
                self._wake.clear()
                await self._wake.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        finally:
            self._ended.set()
