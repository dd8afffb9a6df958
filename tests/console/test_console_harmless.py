"""Nothing that a peer says steers the terminal, wherever it is drawn."""

import pytest
from console_support import (
    FakeClock,
    FakeFeed,
    arrived,
    console,
    document_of,
    scene,
    screen_text,
    settled,
)
from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.pilot import Pilot

from flodl_console.app import ConsoleApp
from flodl_console.line_filters import HarmlessLines
from flodl_console.view.records import Record
from flodl_console.widgets.answers import Answers
from flodl_console.widgets.masthead import Masthead
from flodl_console.widgets.notice_line import NoticeLine

BAD = "bl\x1b[31mue\x1b]0;pwn\x07\n\u202e[bold]\x9b2J"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def is_harmless(text: str) -> bool:
    return text.isprintable() and "\u202e" not in text


def records_of_a_bad_peer(**run: object) -> tuple[Record, ...]:
    records = scene("training")
    document = document_of(records)
    ranks = tuple(
        rank.model_copy(update={"host": f"{rank.host}{BAD}", "device": BAD, "cause": BAD})
        for rank in document.ranks
    )
    told = document.model_copy(
        update={
            "ranks": ranks,
            "run": document.run.model_copy(update={"name": BAD, "mode": BAD} | run),
        }
    )
    return (*records[:-1], arrived(told))


async def press(pilot: Pilot[int], clock: FakeClock, *keys: str) -> None:
    for key in keys:
        clock.advance(0.4)
        await pilot.press(key)
        await settled(pilot)


@pytest.mark.anyio
@pytest.mark.slow
class TestTheScreens:
    @pytest.mark.parametrize("key", ["1", "2", "3", "4", "5", "question_mark", "a"])
    async def test_no_screen_draws_what_steers(self, key: str) -> None:
        clock = FakeClock()
        feed = FakeFeed(records_of_a_bad_peer())
        async with console(feed, clock=clock, size=(120, 40)) as pilot:
            await press(pilot, clock, key)
            assert all(is_harmless(line) for line in screen_text(pilot).splitlines())

    async def test_the_name_of_the_run_is_cleaned_before_the_first_line_gets_it(self) -> None:
        async with console(FakeFeed(records_of_a_bad_peer()), size=(120, 40)) as pilot:
            name = pilot.app.screen.query_one(Masthead).run_name
            assert is_harmless(name)
            assert "\\x1b[31m" in name

    @pytest.mark.parametrize("key", ["d", "e"])
    async def test_boxes_are_asked_with_cleaned_names_and_answer_with_the_runs_own(
        self, key: str
    ) -> None:
        clock, feed = FakeClock(), FakeFeed(records_of_a_bad_peer())
        async with console(feed, clock=clock, size=(120, 40)) as pilot:
            await press(pilot, clock, "1", key)
            answers = pilot.app.screen.query_one(Answers).answers
            assert len(answers) > 1
            assert all(is_harmless(answer) for answer in answers)
            await press(pilot, clock, "enter")
            if key == "d":
                await press(pilot, clock, "tab", "enter")
                assert feed.asked == [("drain", {"host": f"red{BAD}"})]

    async def test_a_notice_is_cleaned_whoever_says_it(self) -> None:
        async with console(FakeFeed(scene("training"))) as pilot:
            assert isinstance(pilot.app, ConsoleApp)
            pilot.app.notice(f"written: {BAD}")
            await settled(pilot)
            text = pilot.app.screen.query_one(NoticeLine).phrase.text
            assert is_harmless(text)
            assert "written: bl\\x1b[31m" in text

    async def test_a_run_whose_id_is_a_path_leads_nowhere_else(self, tmp_path) -> None:
        clock = FakeClock()
        feed = FakeFeed(records_of_a_bad_peer(id=f"../../{BAD}"))
        place = tmp_path / "one" / "two"
        place.mkdir(parents=True)
        async with console(feed, clock=clock, directory=place) as pilot:
            await press(pilot, clock, "w", "enter")
            for _ in range(100):
                await settled(pilot)
                if "written" in screen_text(pilot):
                    break
            (path,) = place.iterdir()
            assert is_harmless(path.name)
            assert path.name.startswith("flodl-")


def filtered(text: str) -> list[str]:
    style = Style(bold=True)
    segments = HarmlessLines().apply([Segment(text, style)], Color(0, 0, 0))
    assert all(segment.style == style for segment in segments)
    return [segment.text for segment in segments]


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("rank 2 on Zürich · 日本 ‖", "rank 2 on Zürich · 日本 ‖"),
        ("a\x1b[2Jb", "a[2Jb"),
        ("a\u202eb\u2066c\u2028d\u0085e\x7ff", "abcdef"),
    ],
)
def test_the_last_wall_takes_away_what_steers_and_nothing_else(text: str, drawn: str) -> None:
    assert filtered(text) == [drawn]


def test_the_last_wall_leaves_the_terminals_own_orders_alone() -> None:
    order = Control.clear().segment
    assert HarmlessLines().apply([order], Color(0, 0, 0)) == [order]
