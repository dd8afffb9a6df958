"""A console in front of a pilot, with a feed and a clock that tests hold in their hands."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from textual.pilot import Pilot

from flodl_console.app import ConsoleApp
from flodl_console.demo.scenarios import DEFAULT_RANKS, open_scenario
from flodl_console.feed.source import ActionOutcome, Feed
from flodl_console.screens.form import Launch
from flodl_console.settings import ConsoleSettings
from flodl_console.view.records import (
    DocumentArrived,
    EventsArrived,
    LinkChanged,
    LinkState,
    PlaybackMoved,
    Record,
    SourceKind,
    SourceOpened,
    WindowsArrived,
)
from flodl_core.telemetry.state import StateDocument

DONE = ActionOutcome(is_accepted=True, text="it will be done")
QUIET_ROUNDS = 3
MAX_ROUNDS = 400


@dataclass
class FakeClock:
    """A monotonic clock that stands until it is moved."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, by_s: float) -> None:
        self.now_s += by_s


@dataclass
class FakeFeed:
    """A live run that says what a test hands it, and remembers what it was asked."""

    opening: Sequence[Record] = ()
    outcome: ActionOutcome = DONE
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    is_closed: bool = False
    error: Exception | None = None
    held: asyncio.Event | None = None
    """An answer waits for this, where it is set."""
    join_token: str | None = None

    def __post_init__(self) -> None:
        self._records: asyncio.Queue[Record] = asyncio.Queue()
        for record in self.opening:
            self._records.put_nowait(record)

    async def records(self) -> AsyncIterator[Record]:
        while True:
            yield await self._records.get()
            if self.error is not None:
                raise self.error

    async def ask(self, action: str, **parameters: str) -> ActionOutcome:
        self.asked.append((action, parameters))
        if self.held is not None:
            await self.held.wait()
        return self.outcome

    async def aclose(self) -> None:
        self.is_closed = True

    def say(self, *records: Record) -> None:
        for record in records:
            self._records.put_nowait(record)

    @property
    def is_heard(self) -> bool:
        return self._records.empty()


@dataclass
class FakePlayback(FakeFeed):
    """The same, with a position; it remembers how it was moved."""

    moves: list[tuple[str, float]] = field(default_factory=list)

    def set_paused(self, *, is_paused: bool) -> None:
        self.moves.append(("paused", float(is_paused)))

    def step(self, records: int) -> None:
        self.moves.append(("step", records))

    def seek(self, position_s: float) -> None:
        self.moves.append(("seek", position_s))

    def set_speed(self, speed: float) -> None:
        self.moves.append(("speed", speed))


def opened(kind: SourceKind = SourceKind.LIVE, *, is_read_only: bool = False) -> SourceOpened:
    return SourceOpened(kind=kind, label="127.0.0.1:1337", is_read_only=is_read_only)


def arrived(document: StateDocument, *, at_s: float = 1000.0) -> DocumentArrived:
    return DocumentArrived(document=document, at_s=at_s, size_bytes=4_096, took_ms=3.0)


def moved(position_s: float = 60.0, *, is_paused: bool = False) -> PlaybackMoved:
    return PlaybackMoved(position_s=position_s, length_s=3_600.0, speed=1.0, is_paused=is_paused)


def link(state: LinkState, detail: str, *, retry_in_s: float | None = None) -> LinkChanged:
    return LinkChanged(state=state, detail=detail, at_s=1000.0, retry_in_s=retry_in_s)


def scene(
    scenario: str, *, at_s: float | None = None, ranks: int = DEFAULT_RANKS
) -> tuple[Record, ...]:
    """Return what a feed of a scenario has said by a moment: as of a live run."""
    run = open_scenario(scenario, seed=0, ranks=ranks)
    position_s = run.begin_s if at_s is None else at_s
    document = run.document_at(position_s)
    assert document is not None
    return (
        opened(),
        WindowsArrived(page=run.windows_until(position_s), at_s=1000.0),
        EventsArrived(page=run.events_until(position_s), at_s=1000.0),
        arrived(document),
    )


def document_of(records: Sequence[Record]) -> StateDocument:
    """Return the document among some records."""
    return next(record.document for record in records if isinstance(record, DocumentArrived))


@asynccontextmanager
async def console(
    feed: Feed | None,
    *,
    size: tuple[int, int] = (80, 24),
    settings: ConsoleSettings | None = None,
    clock: Callable[[], float] | None = None,
    launch: Launch | None = None,
    directory: Path | None = None,
) -> AsyncIterator[Pilot[int]]:
    """Run a console without a terminal; yields its pilot once all is drawn."""
    app = ConsoleApp(
        settings or ConsoleSettings(),
        feed=feed,
        clock=clock or FakeClock(),
        launch=launch,
        directory=directory,
    )
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        yield pilot


async def settled(pilot: Pilot[int]) -> None:
    """Wait until everything that was said is on the screen and nothing more happens.

    It counts rounds, not seconds: a slow machine takes longer and sees the same.
    """
    quiet = 0
    for _ in range(MAX_ROUNDS):
        await pilot.pause(0)
        quiet = quiet + 1 if _is_quiet(pilot) else 0
        if quiet >= QUIET_ROUNDS:
            return
    raise AssertionError("the console does not come to rest")


def _is_quiet(pilot: Pilot[int]) -> bool:
    app = pilot.app
    if not app.is_running or not app.screen_stack:
        return True
    feed = app.feed if isinstance(app, ConsoleApp) else None
    if isinstance(feed, FakeFeed) and not feed.is_heard:
        return False
    pumps = [app, *app.screen.walk_children(with_self=True)]
    return all(pump.message_queue_size == 0 for pump in pumps)


def app_of(pilot: Pilot[int]) -> ConsoleApp:
    """Return the console under a pilot."""
    assert isinstance(pilot.app, ConsoleApp)
    return pilot.app


def screen_text(pilot: Pilot[int]) -> str:
    """Return what is on the screen, line by line, without styles."""
    size = pilot.app.size
    lines = pilot.app.screen._compositor.render_strips(size)
    return "\n".join(strip.text.rstrip() for strip in lines)
