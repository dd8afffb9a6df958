"""Curves are drawn seldom while they grow, and at once where they show another past."""

from dataclasses import replace

import pytest
from console_documents import training, view_of, window
from console_support import (
    FakeClock,
    FakePlayback,
    arrived,
    console,
    document_of,
    moved,
    opened,
    scene,
    settled,
)
from textual.pilot import Pilot

from flodl_console.demo.scenarios import open_scenario
from flodl_console.view.model import ConsoleView
from flodl_console.view.plots import Plot
from flodl_console.view.records import (
    EventsArrived,
    PlaybackReset,
    Record,
    SourceKind,
    WindowsArrived,
)
from flodl_console.widgets.plot_panel import PlotPanel
from flodl_console.widgets.redrawing import Redrawing
from flodl_core.telemetry.records import EventPage

PAUSE_S = 4.0


def view(*, newest: int, last: int, first: int = 1, now_s: float = 0.0) -> ConsoleView:
    """A view with these windows, of a run whose document tells of more or of no more."""
    rows = tuple(window(seq) for seq in range(first, last + 1))
    return replace(view_of(training(newest_window_seq=newest), windows=rows), now_s=now_s)


def later(known: ConsoleView, *, last: int, now_s: float) -> ConsoleView:
    """The same document, with more windows."""
    rows = tuple(window(seq) for seq in range(1, last + 1))
    return replace(known, windows=rows, now_s=now_s)


class Drawing:
    """Draws whenever it is due, and counts."""

    def __init__(self) -> None:
        self.redrawing = Redrawing()
        self.drawn = 0

    def take(self, shown: ConsoleView) -> bool:
        is_due = self.redrawing.is_due(shown, pause_s=PAUSE_S)
        if is_due:
            self.redrawing.note(shown)
            self.drawn += 1
        return is_due


def test_a_past_that_only_grows_is_drawn_seldom():
    drawing, known = Drawing(), view(newest=10, last=10)
    assert drawing.take(known)
    assert not drawing.take(later(known, last=11, now_s=1.0))
    assert not drawing.take(later(known, last=14, now_s=3.9))
    assert drawing.take(later(known, last=15, now_s=4.0))


def test_what_has_not_grown_is_not_drawn_again():
    drawing, known = Drawing(), view(newest=10, last=10)
    assert drawing.take(known)
    assert not drawing.take(replace(known, now_s=60.0))


def test_each_page_of_a_past_that_is_being_read_is_drawn_at_once():
    drawing, known = Drawing(), view(newest=40, last=10)
    assert drawing.take(known)
    assert drawing.take(later(known, last=20, now_s=0.1))
    assert drawing.take(later(known, last=40, now_s=0.2))
    assert not drawing.take(later(known, last=41, now_s=0.3))


def test_a_document_that_is_ahead_of_its_windows_is_no_reason_to_draw():
    drawing, known = Drawing(), view(newest=10, last=10)
    assert drawing.take(known)
    ahead = training(newest_window_seq=12)
    grown = later(replace(known, document=ahead), last=11, now_s=1.0)
    assert not drawing.take(grown)
    assert not drawing.take(later(grown, last=12, now_s=1.1))


@pytest.mark.parametrize(("first", "last"), [(1, 20), (1, 0), (50, 80)])
def test_after_a_jump_the_other_past_is_drawn_at_once_and_each_page_that_follows(first, last):
    drawing, known = Drawing(), view(newest=100, last=100, first=first)
    assert drawing.take(known)
    jumped = replace(
        view(newest=1, last=last, first=min(first, last)), document=known.document, now_s=0.5
    )
    assert drawing.take(jumped)
    more = later(jumped, last=200, now_s=0.6)
    assert drawing.take(more)
    assert drawing.take(later(more, last=300, now_s=0.7))
    there = training(newest_window_seq=300)
    assert drawing.take(later(replace(more, document=there), last=300, now_s=0.8))
    assert not drawing.take(later(replace(more, document=there), last=301, now_s=0.9))


def test_another_source_is_drawn_at_once():
    drawing, known = Drawing(), view(newest=10, last=10)
    assert drawing.take(known)
    assert drawing.take(replace(later(known, last=11, now_s=0.1), label="runs/b"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def plots_of(pilot: Pilot[int]) -> list[Plot | None]:
    return [panel.plot for panel in pilot.app.screen.query(PlotPanel)]


def jump(scenario: str, at_s: float, *, page: int) -> list[Record]:
    """What a playback says after a jump: its pages, and then the document."""
    run = open_scenario(scenario, seed=0)
    pages = run.windows_until(at_s)
    rows = pages.records
    document = run.document_at(at_s)
    assert document is not None
    return [
        PlaybackReset(),
        *(
            WindowsArrived(
                page=pages.model_copy(update={"records": rows[first : first + page]}), at_s=1000.0
            )
            for first in range(0, len(rows), page)
        ),
        EventsArrived(page=EventPage(oldest_seq=0, newest_seq=0), at_s=1000.0),
        arrived(document),
        moved(at_s, is_paused=True),
    ]


def playback(*, at_s: float) -> FakePlayback:
    records = scene("night", at_s=at_s)
    return FakePlayback((opened(SourceKind.DEMO), *records[1:], moved(at_s, is_paused=True)))


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_jump_to_before_there_were_ranks_leaves_no_plot_on_the_rank_screen() -> None:
    feed, clock = playback(at_s=2_000.0), FakeClock()
    async with console(feed, clock=clock, size=(140, 45)) as pilot:
        await pilot.press("3")
        await settled(pilot)
        assert all(plots_of(pilot))
        feed.say(*jump("night", 0.0, page=500))
        await settled(pilot)
        assert plots_of(pilot) == [None] * 4


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize("key", ["2", "3"])
@pytest.mark.parametrize("to_s", [1_500.0, 3_000.0])
async def test_after_a_jump_the_plots_show_the_time_that_was_jumped_to(
    key: str, to_s: float
) -> None:
    feed, clock = playback(at_s=2_000.0), FakeClock()
    async with console(feed, clock=clock, size=(140, 45)) as pilot:
        await pilot.press(key)
        await settled(pilot)
        feed.say(*jump("night", to_s, page=40))
        await settled(pilot)
        newest_s = document_of(scene("night", at_s=to_s)).run.uptime_s
        shown = [one for one in plots_of(pilot) if one is not None]
        assert shown
        for one in shown:
            assert newest_s - 60.0 < one.x_high_s <= newest_s
