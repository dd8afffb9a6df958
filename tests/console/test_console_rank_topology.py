"""The Rank and Topology screens: one rank after the other, and a cursor in a tree."""

import pytest
from console_support import (
    FakeFeed,
    arrived,
    console,
    document_of,
    opened,
    scene,
    screen_text,
    settled,
)

from flodl_console.screens.rank import RankScreen
from flodl_console.screens.topology import TopologyScreen
from flodl_console.widgets.plot_panel import PlotPanel

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_rank_screen_begins_with_the_lowest_rank() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        await pilot.press("3")
        await settled(pilot)
        assert isinstance(pilot.app.screen, RankScreen)
        assert "rank 0 on red" in screen_text(pilot)


async def test_one_walks_from_rank_to_rank_and_stops_at_either_end() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        await pilot.press("3")
        await settled(pilot)
        await pilot.press("right")
        await settled(pilot)
        assert "rank 1 on red" in screen_text(pilot)
        await pilot.press("right", "right")
        await settled(pilot)
        assert "rank 3 on blue" in screen_text(pilot)
        await pilot.press("right")
        await settled(pilot)
        assert "rank 3 on blue" in screen_text(pilot)
        assert "no rank above this one" in screen_text(pilot)
        await pilot.press("left", "left", "left", "left")
        await settled(pilot)
        assert "rank 0 on red" in screen_text(pilot)
        assert "no rank below this one" in screen_text(pilot)


async def test_a_lost_rank_says_how_it_ended_and_shows_its_events() -> None:
    async with console(FakeFeed(scene("lost", at_s=171.0)), size=(80, 40)) as pilot:
        await pilot.press("3")
        await settled(pilot)
        await pilot.press("right")
        await settled(pilot)
        text = screen_text(pilot)
        assert "lost" in text.splitlines()[1]
        assert "SIGKILL" in text
        assert "Events of this rank" in text


async def test_what_is_below_the_screen_is_scrolled_to() -> None:
    async with console(FakeFeed(scene("lost", at_s=171.0)), size=(80, 18)) as pilot:
        await pilot.press("3")
        await settled(pilot)
        await pilot.press("right")
        await settled(pilot)
        assert "Events of this rank" not in screen_text(pilot)
        for _ in range(20):
            await pilot.press("down")
        await settled(pilot)
        assert "Events of this rank" in screen_text(pilot)


async def test_before_there_are_ranks_the_screen_says_so() -> None:
    async with console(FakeFeed((opened(),))) as pilot:
        await pilot.press("3")
        await settled(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, RankScreen)
        assert screen.chosen_rank is None
        assert screen.chosen_host is None
        assert "there are no ranks yet" in screen_text(pilot)


async def test_a_large_terminal_draws_the_past_of_the_rank() -> None:
    async with console(FakeFeed(scene("training")), size=(120, 36)) as pilot:
        await pilot.press("3")
        await settled(pilot)
        screen = pilot.app.screen
        titles = [panel.plot.title for panel in screen.query(PlotPanel) if panel.plot]
        assert titles == ["ms/batch", "batches", "weight", "divergence"]
        before = screen.query(PlotPanel).first().plot
        await pilot.press("right")
        await settled(pilot)
        assert screen.query(PlotPanel).first().plot != before


async def test_all_that_is_said_of_a_rank_can_be_copied() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        await pilot.press("3")
        await settled(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, RankScreen)
        assert screen.chosen_host == "red"
        assert "ms/batch" in screen.text_to_copy()


async def test_the_tree_shows_launcher_hosts_relay_and_ranks() -> None:
    async with console(FakeFeed(scene("lost", at_s=171.0))) as pilot:
        await pilot.press("4")
        await settled(pilot)
        text = screen_text(pilot)
        for word in ("launcher", "host red", "host blue", "relay", "rank 0", "rank 3"):
            assert word in text


async def test_the_cursor_of_the_tree_stays_with_its_line() -> None:
    records = scene("training")
    feed = FakeFeed(records)
    async with console(feed) as pilot:
        await pilot.press("4", "down", "down", "down")
        await settled(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, TopologyScreen)
        assert screen.chosen_rank == 1
        document = document_of(records)
        feed.say(arrived(document.model_copy(update={"ranks": document.ranks[1:]})))
        await settled(pilot)
        assert screen.chosen_rank == 1
        assert screen.chosen_host == "red"


async def test_from_the_tree_one_goes_to_a_rank_and_only_to_a_rank() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        await pilot.press("4", "enter")
        await settled(pilot)
        assert "this line is no rank" in screen_text(pilot)
        await pilot.press("end", "enter")
        await settled(pilot)
        assert isinstance(pilot.app.screen, RankScreen)
        assert "rank 3 on blue" in screen_text(pilot)


async def test_a_long_tree_shows_the_part_around_the_cursor() -> None:
    async with console(FakeFeed(scene("training", ranks=64))) as pilot:
        await pilot.press("4", "pagedown", "pagedown", "pageup")
        await settled(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, TopologyScreen)
        assert "→" in screen_text(pilot)
        await pilot.press("end")
        await settled(pilot)
        assert screen.chosen_rank == 63
        assert "rank 63" in screen_text(pilot)
        await pilot.press("home")
        await settled(pilot)
        assert "launcher" in screen_text(pilot)


async def test_the_whole_tree_can_be_copied() -> None:
    async with console(FakeFeed(scene("training", ranks=64))) as pilot:
        await pilot.press("4")
        await settled(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, TopologyScreen)
        assert "rank 63" in screen.text_to_copy()


async def test_before_the_first_document_there_is_no_tree() -> None:
    async with console(FakeFeed((opened(),))) as pilot:
        await pilot.press("4", "down", "enter")
        await settled(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, TopologyScreen)
        assert screen.chosen_rank is None
        assert screen.chosen_host is None
        assert screen.text_to_copy() == ""
        assert "no document has come yet" in screen_text(pilot)
