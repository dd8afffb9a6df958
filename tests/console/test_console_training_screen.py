"""The Training screen: a cursor that stays with its rank, sorting, filter, pins, plots."""

import pytest
from console_support import (
    FakeClock,
    FakeFeed,
    arrived,
    console,
    document_of,
    opened,
    scene,
    screen_text,
    settled,
)
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widgets import Input

from flodl_console.screens.rank import RankScreen
from flodl_console.screens.training import TrainingScreen
from flodl_console.view.fold import fold
from flodl_console.view.model import ConsoleView, initial
from flodl_console.view.ranks import ColumnKey, RankChoice, rank_table
from flodl_console.widgets.plot_panel import PlotPanel
from flodl_console.widgets.rank_table import RankTableView
from flodl_core.telemetry.state import StateDocument

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def with_rank(document: StateDocument, rank: int, **changes: object) -> StateDocument:
    rows = [row.model_copy(update=changes) if row.rank == rank else row for row in document.ranks]
    return document.model_copy(update={"ranks": tuple(rows)})


def training(pilot: Pilot[int]) -> TrainingScreen:
    screen = pilot.app.screen
    assert isinstance(screen, TrainingScreen)
    return screen


async def sorted_by(pilot: Pilot[int], key: ColumnKey) -> None:
    while training(pilot).table.choice.sort is not key:
        await pilot.press("o")
        await settled(pilot)


def order(pilot: Pilot[int]) -> tuple[int, ...]:
    table = training(pilot).table.table
    assert table is not None
    return table.ranks


async def test_the_cursor_stays_with_its_rank_through_sorting() -> None:
    async with console(FakeFeed(scene("training", ranks=8))) as pilot:
        await pilot.press("down", "down")
        assert training(pilot).chosen_rank == 2
        await sorted_by(pilot, ColumnKey.MS_PER_BATCH)
        assert order(pilot) != tuple(range(8))
        assert training(pilot).chosen_rank == 2
        await pilot.press("O")
        await settled(pilot)
        assert training(pilot).chosen_rank == 2


async def test_the_cursor_stays_with_its_rank_through_updates_that_move_it() -> None:
    records = scene("training", ranks=64)
    feed, clock = FakeFeed(records), FakeClock()
    async with console(feed, clock=clock) as pilot:
        await sorted_by(pilot, ColumnKey.MS_PER_BATCH)
        await pilot.press("end")
        await settled(pilot)
        last = training(pilot).chosen_rank
        assert last == order(pilot)[-1]
        feed.say(arrived(with_rank(document_of(records), last, ms_per_batch=900.0)))
        await settled(pilot)
        assert order(pilot)[0] == last
        assert training(pilot).chosen_rank == last
        assert "→" in screen_text(pilot)
        assert training(pilot).table.first_row == 0


async def test_when_its_rank_is_filtered_away_the_cursor_takes_the_one_in_its_place() -> None:
    async with console(FakeFeed(scene("training", ranks=8))) as pilot:
        await pilot.press("down")
        assert training(pilot).chosen_rank == 1
        await pilot.press("slash")
        training(pilot).query_one(Input).value = "blue"
        await settled(pilot)
        shown = order(pilot)
        hosts = {row.rank: row.host for row in document_of(scene("training", ranks=8)).ranks}
        assert shown
        assert {hosts[rank] for rank in shown} == {"blue"}
        assert training(pilot).chosen_rank == shown[1]


async def test_keys_are_letters_while_the_filter_is_typed() -> None:
    async with console(FakeFeed(scene("training", ranks=8))) as pilot:
        await pilot.press("slash", "o", "p", "z")
        await settled(pilot)
        field = training(pilot).query_one(Input)
        assert field.value == "opz"
        assert training(pilot).table.choice == RankChoice(filter_text="opz")
        assert "no rank" in screen_text(pilot)


async def test_escape_drops_the_filter_and_enter_keeps_it() -> None:
    async with console(FakeFeed(scene("training", ranks=8))) as pilot:
        await pilot.press("slash", *"blue", "enter")
        await settled(pilot)
        assert training(pilot).query_one(Input).display
        assert training(pilot).focused is None
        await pilot.press("slash", "escape")
        await settled(pilot)
        assert not training(pilot).query_one(Input).display
        assert len(order(pilot)) == 8


async def test_a_pinned_rank_stands_on_top_whatever_the_order() -> None:
    async with console(FakeFeed(scene("training", ranks=8))) as pilot:
        await pilot.press("end", "p")
        await settled(pilot)
        assert order(pilot)[0] == 7
        assert training(pilot).chosen_rank == 7
        await pilot.press("p")
        await settled(pilot)
        assert order(pilot) == tuple(range(8))


async def test_the_rank_in_trouble_is_one_key_away() -> None:
    async with console(FakeFeed(scene("late", at_s=139.0, ranks=64))) as pilot:
        await pilot.press("end", "i")
        await settled(pilot)
        assert training(pilot).chosen_rank == 1


async def test_without_trouble_the_key_says_so() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        await pilot.press("i")
        await settled(pilot)
        assert "about no single rank" in screen_text(pilot)


async def test_trouble_that_is_filtered_away_is_named() -> None:
    async with console(FakeFeed(scene("late", at_s=139.0, ranks=8))) as pilot:
        await pilot.press("slash", *"blue", "enter", "i")
        await settled(pilot)
        assert "rank 1 does not pass the filter" in screen_text(pilot)


async def test_enter_shows_the_chosen_rank() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        await pilot.press("down", "enter")
        await settled(pilot)
        assert isinstance(pilot.app.screen, RankScreen)
        assert "rank 1 on" in screen_text(pilot)


async def test_without_ranks_nothing_is_opened_copied_or_pinned() -> None:
    async with console(FakeFeed(scene("empty", ranks=0))) as pilot:
        await pilot.press("2")
        await settled(pilot)
        screen = training(pilot)
        assert screen.chosen_rank is None
        assert screen.chosen_host is None
        assert screen.text_to_copy() == ""
        await pilot.press("p", "enter", "down", "end", "pagedown")
        await settled(pilot)
        assert "no rank is chosen" in screen_text(pilot)


async def test_pages_move_by_what_is_in_sight() -> None:
    async with console(FakeFeed(scene("training", ranks=64))) as pilot:
        page = training(pilot).table.rows_in_sight
        await pilot.press("pagedown")
        assert training(pilot).chosen_rank == page
        await pilot.press("pageup")
        assert training(pilot).chosen_rank == 0


async def test_the_chosen_row_and_host_can_be_copied() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        await pilot.press("down")
        text = training(pilot).text_to_copy()
        assert "red" in text
        assert "training" in text
        assert training(pilot).chosen_host == "red"


async def test_zoom_shows_less_of_the_past_and_then_all_again() -> None:
    async with console(FakeFeed(scene("training", at_s=1500.0))) as pilot:
        panel = training(pilot).query(PlotPanel).first()
        assert panel.plot is not None
        whole_s = panel.plot.x_high_s - panel.plot.x_low_s
        spans = []
        for _ in range(5):
            await pilot.press("z")
            await settled(pilot)
            spans.append(panel.plot.x_high_s - panel.plot.x_low_s)
        assert spans[2] <= 600.0
        assert spans[3] <= 60.0
        assert spans[4] == whole_s
        assert "plots show all of the run" in screen_text(pilot)


async def test_the_next_plot_is_drawn_where_there_is_room_for_one() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        assert "loss  " in screen_text(pilot).splitlines()[11]
        await pilot.press("v")
        await settled(pilot)
        assert "batches of each rank" in screen_text(pilot)


async def test_plots_wait_until_a_curve_has_grown() -> None:
    records = scene("training", at_s=600.0)
    feed, clock = FakeFeed(records), FakeClock()
    async with console(feed, clock=clock) as pilot:
        panel = training(pilot).query(PlotPanel).first()
        drawn = panel.plot
        later = scene("training", at_s=630.0)
        clock.advance(1.0)
        feed.say(later[1], arrived(document_of(later), at_s=clock.now_s))
        await settled(pilot)
        assert panel.plot is drawn
        clock.advance(10.0)
        feed.say(arrived(document_of(later), at_s=clock.now_s))
        await settled(pilot)
        assert panel.plot is not None
        assert drawn is not None
        assert panel.plot.x_high_s > drawn.x_high_s


async def test_before_the_first_document_the_screen_says_what_is_missing() -> None:
    async with console(FakeFeed((opened(),))) as pilot:
        await pilot.press("2")
        await settled(pilot)
        assert "no document has come yet" in screen_text(pilot)
        assert "the world has not formed" in screen_text(pilot)


async def test_a_run_that_failed_shows_its_diagnosis_in_80_by_24() -> None:
    async with console(FakeFeed(scene("failed", at_s=160.0))) as pilot:
        text = screen_text(pilot)
        assert "failed (exit code 1)" in text
        assert "SIGKILL" in text
        assert "Look at the first critical event" in text


async def test_an_average_that_waits_shows_its_gauge_and_for_whom() -> None:
    async with console(FakeFeed(scene("stalled")), size=(120, 36)) as pilot:
        text = screen_text(pilot)
        assert "█" in text
        assert "Pending" in text
        assert "rank 2 on blue" in text


class Bare(App[None]):
    """A rank table that notes what it was asked to draw anew."""

    def __init__(self, view: ConsoleView) -> None:
        super().__init__()
        self.known = view
        self.table = Noted()

    def compose(self) -> ComposeResult:
        yield self.table

    def on_rank_table_view_rows_wanted(self) -> None:
        self.show(self.known)

    def show(self, view: ConsoleView) -> None:
        self.known = view
        self.table.table = rank_table(
            view,
            RankChoice(),
            first_row=self.table.first_row,
            max_rows=self.table.rows_in_sight,
        )


class Noted(RankTableView):
    """Keeps the regions that were refreshed."""

    noted: list[Region]

    def refresh(self, *regions: Region, **options: bool) -> "Noted":
        if not hasattr(self, "noted"):
            self.noted = []
        self.noted.extend(regions)
        return super().refresh(*regions, **options)


async def test_only_cells_that_changed_are_drawn_anew() -> None:
    view = initial()
    records = scene("training", ranks=8)
    for record in records:
        view = fold(view, record)
    app = Bare(view)
    async with app.run_test(size=(80, 12)) as pilot:
        await pilot.pause()
        app.show(view)
        await pilot.pause()
        app.table.noted.clear()
        changed = with_rank(document_of(records), 5, ms_per_batch=12.0)
        app.show(fold(view, arrived(changed)))
        await pilot.pause()
        assert len(app.table.noted) == 1
        region = app.table.noted[0]
        assert (region.y, region.height) == (6, 1)
        assert region.width < 40


async def test_rows_that_come_into_sight_are_asked_for() -> None:
    view = initial()
    for record in scene("training", ranks=64):
        view = fold(view, record)
    app = Bare(view)
    async with app.run_test(size=(80, 12)) as pilot:
        await pilot.pause()
        app.table.move(40)
        await pilot.pause()
        await pilot.pause()
        assert app.table.table is not None
        assert 40 in {row.rank for row in app.table.table.rows}
        assert app.table.cursor_rank == 40
        assert not app.table.move_to(999)
