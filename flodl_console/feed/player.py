"""Plays a recording: what its reader would have seen, at a speed, from a position.

What it is: the loop of a playback: waits, moves the playhead, yields what is new.
What it is not: the recording, nor a road to a run; nothing is asked of it.
Who drives it: `feed.replay` and `feed.demo`, which a worker iterates.

    orders (pause, step, seek, speed) ──▶ playhead ──▶ pages and documents
                                             ▲
                                           clock
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from flodl_console.feed.clock import FeedClock
from flodl_console.feed.playhead import LONGEST_S, Playhead
from flodl_console.feed.recording import Recording
from flodl_console.view.records import (
    DocumentArrived,
    EventsArrived,
    LinkChanged,
    LinkState,
    PlaybackMoved,
    PlaybackReset,
    Record,
    WindowsArrived,
)
from flodl_core.errors import FlodlError
from flodl_core.telemetry.records import EventPage, WindowPage
from flodl_core.telemetry.state import publish
from flodl_core.units import Seconds

PAGE_RECORDS: Final = 500

Loaded = TypeVar("Loaded")
Order = Callable[[Playhead], None]


class Player:
    """One playback.

    Args:
        load: opens the recording; may take long.
        begin_s: where to begin.
        is_paused: whether to begin standing.
        clock: time to wait by.
        reads_files: whether the recording is read in a thread, so that a slow disk
            does not hold the screen.
    """

    def __init__(
        self,
        load: Callable[[], Recording],
        *,
        begin_s: Callable[[Recording], Seconds],
        is_paused: bool,
        clock: FeedClock,
        reads_files: bool,
    ) -> None:
        self._load = load
        self._begin_s = begin_s
        self._starts_paused = is_paused
        self._clock = clock
        self._reads_files = reads_files
        self._orders: deque[Order] = deque(maxlen=64)
        self._ordered = anyio.Event()
        self._seen_windows = 0
        self._seen_events = 0
        self._shown_s: Seconds | None = None

    def order(self, order: Order) -> None:
        """Have the playhead moved soon; the oldest of too many orders is dropped."""
        self._orders.append(order)
        self._ordered.set()

    async def play(self, label: str) -> AsyncGenerator[Record, None]:
        """Yield what the recording holds, until cancelled."""
        yield self._link(LinkState.LOADING, f"reading {label}")
        try:
            recording = await self._call(self._load)
        except (FlodlError, OSError) as error:
            yield self._link(LinkState.ENDED, f"{label} cannot be played: {_told(error)}")
            await anyio.sleep_forever()
            return
        head = Playhead(recording.times(), recording.length_s, begin_s=self._begin_s(recording))
        head.is_paused = self._starts_paused
        yield self._link(LinkState.LIVE, _words(label, recording))
        is_reset = False
        while True:
            shown = self._show(recording, head, label=label, is_reset=is_reset)
            async with aclosing(shown):
                async for record in shown:
                    yield record
            is_reset = await self._move(head)

    async def _move(self, head: Playhead) -> bool:
        """Wait for time or an order and move; return whether the playhead jumped."""
        began_s = self._clock.now()
        await self._clock.wait(self._ordered, None if head.is_paused else head.wait_s())
        if not head.is_paused:
            head.advance(min(self._clock.now() - began_s, LONGEST_S))
        self._ordered = anyio.Event()
        while self._orders:
            self._orders.popleft()(head)
        return head.take_jump()

    async def _show(
        self, recording: Recording, head: Playhead, *, label: str, is_reset: bool
    ) -> AsyncGenerator[Record, None]:
        """Yield what is new at the playhead."""
        if is_reset:
            self._seen_windows = self._seen_events = 0
            self._shown_s = None
            yield PlaybackReset()
        try:
            windows, events = await self._call(lambda: self._pages(recording, head.position_s))
            for record in self._arrivals(windows, events):
                yield record
                await anyio.lowlevel.checkpoint()
            due_s = head.shown_at_s
            if due_s is not None and due_s != self._shown_s:
                self._shown_s = due_s
                known = recording.missing
                arrived = await self._call(lambda: self._document(recording, due_s))
                if recording.missing != known:
                    yield self._link(LinkState.LIVE, _words(label, recording))
                if arrived is not None:
                    yield arrived
        except (FlodlError, OSError) as error:
            head.is_paused = True
            yield self._link(
                LinkState.DISCONNECTED, f"the record cannot be read here: {_told(error)}"
            )
        yield PlaybackMoved(
            position_s=head.position_s,
            length_s=head.length_s,
            speed=head.speed,
            is_paused=head.is_paused,
        )

    def _pages(self, recording: Recording, at_s: Seconds) -> tuple[WindowPage, EventPage]:
        return (
            recording.windows_until(at_s, since=self._seen_windows),
            recording.events_until(at_s, since=self._seen_events),
        )

    def _arrivals(self, windows: WindowPage, events: EventPage) -> Iterator[Record]:
        now_s = self._clock.now()
        for first in range(0, len(windows.records), PAGE_RECORDS):
            part = windows.records[first : first + PAGE_RECORDS]
            page = windows.model_copy(update={"records": part})
            yield WindowsArrived(page=page, at_s=now_s)
        for first in range(0, len(events.records), PAGE_RECORDS):
            rows = events.records[first : first + PAGE_RECORDS]
            yield EventsArrived(page=events.model_copy(update={"records": rows}), at_s=now_s)
        self._seen_windows = max(self._seen_windows, windows.newest_seq)
        self._seen_events = max(self._seen_events, events.newest_seq)

    def _document(self, recording: Recording, at_s: Seconds) -> DocumentArrived | None:
        began_s = self._clock.now()
        document = recording.document_at(at_s)
        if document is None:
            return None
        size = len(publish(document))
        now_s = self._clock.now()
        return DocumentArrived(
            document=document, at_s=now_s, size_bytes=size, took_ms=(now_s - began_s) * 1000.0
        )

    async def _call(self, function: Callable[[], Loaded]) -> Loaded:
        if self._reads_files:
            return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)
        await anyio.lowlevel.checkpoint()
        return function()

    def _link(self, state: LinkState, detail: str) -> LinkChanged:
        return LinkChanged(state=state, detail=detail, at_s=self._clock.now())


def _words(label: str, recording: Recording) -> str:
    return "; ".join([f"playing {label}", *recording.missing])


def _told(error: FlodlError | OSError) -> str:
    return error.happened if isinstance(error, FlodlError) else str(error)
