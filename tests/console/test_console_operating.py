"""From a key to a request: nothing is asked of a run without a clear yes."""

import asyncio

import pytest
from console_support import (
    FakeClock,
    FakeFeed,
    arrived,
    console,
    document_of,
    link,
    opened,
    scene,
    screen_text,
    settled,
)
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from flodl_console.app import ConsoleApp
from flodl_console.feed.source import ActionOutcome
from flodl_console.screens.choice import ChoiceScreen
from flodl_console.screens.confirm import ConfirmScreen
from flodl_console.view.records import LinkState
from flodl_core.ids import ClusterPhase

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Desk:
    """A person in front of a console: presses keys, waits out the deaf time, reads."""

    def __init__(self, pilot: Pilot[int], clock: FakeClock) -> None:
        self.pilot, self.clock = pilot, clock

    @property
    def app(self) -> ConsoleApp:
        assert isinstance(self.pilot.app, ConsoleApp)
        return self.pilot.app

    async def press(self, *keys: str, after_s: float = 0.31) -> None:
        for key in keys:
            self.clock.advance(after_s)
            await self.pilot.press(key)
            await settled(self.pilot)

    async def type(self, text: str) -> None:
        names = {" ": "space"}
        self.clock.advance(0.31)
        await self.press(*(names.get(char, char) for char in text), after_s=0.0)

    @property
    def text(self) -> str:
        return screen_text(self.pilot)


def desk_of(pilot: Pilot[int], clock: FakeClock) -> Desk:
    return Desk(pilot, clock)


async def test_start_asks_in_numbers_and_no_is_the_answer_that_is_marked() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("staging"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("s")
        assert isinstance(desk.app.screen, ConfirmScreen)
        assert "Start with 3 ranks on 2 hosts." in desk.text
        assert "Later hosts cannot join this run." in desk.text
        await desk.press("enter")
        assert not isinstance(desk.app.screen, ConfirmScreen)
        assert feed.asked == []


async def test_a_clear_yes_starts_and_the_runs_words_are_shown() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("staging"))
    feed.outcome = ActionOutcome(is_accepted=True, text="the world forms with 3 ranks")
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("s", "tab", "enter")
        assert feed.asked == [("start", {})]
        assert "accepted: the world forms with 3 ranks" in desk.text


async def test_what_the_run_refuses_is_shown_with_its_fix() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("staging"))
    feed.outcome = ActionOutcome(is_accepted=False, text="403 not trusted", fix="give --token-file")
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("s", "right", "enter")
        assert "403 not trusted" in desk.text
        assert "give --token-file" in desk.text


async def test_a_start_below_the_quorum_is_refused_with_the_reason_and_no_box() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("waiting"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        assert "start    ✗  quorum not met: 2/3, 1 more must join" in desk.text
        await desk.press("s")
        assert "▲ quorum not met: 2/3" in desk.text
        assert len(desk.app.screen_stack) == 1
        assert feed.asked == []


async def test_a_box_is_deaf_for_three_tenths_of_a_second() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("staging"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("s")
        await desk.press("tab", after_s=0.1)
        await desk.press("enter", after_s=0.1)
        await desk.press("escape", after_s=0.09)
        assert isinstance(desk.app.screen, ConfirmScreen)
        assert desk.app.screen.answers.marked == 0
        await desk.press("tab", after_s=0.02)
        assert desk.app.screen.answers.marked == 1


async def test_a_box_closes_with_the_reason_when_the_phase_changes() -> None:
    records = scene("staging")
    document = document_of(records)
    clock, feed = FakeClock(), FakeFeed(records)
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("s", "tab")
        feed.say(arrived(document.model_copy(update={"phase": ClusterPhase.FORMING})))
        await settled(pilot)
        assert len(desk.app.screen_stack) == 1
        assert "closed: the run is forming now" in desk.text
        assert feed.asked == []


async def test_a_box_closes_with_the_reason_when_a_host_comes_or_goes() -> None:
    records = scene("staging")
    document = document_of(records)
    clock, feed = FakeClock(), FakeFeed(records)
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("s")
        feed.say(arrived(document.model_copy(update={"members": document.members[:1]})))
        await settled(pilot)
        assert len(desk.app.screen_stack) == 1
        assert "closed: the roster changed, 1 hosts are in" in desk.text


async def test_a_box_closes_when_the_run_no_longer_answers() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("staging"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("s")
        feed.say(link(LinkState.DISCONNECTED, "connection refused", retry_in_s=2.0))
        await settled(pilot)
        assert len(desk.app.screen_stack) == 1
        assert "closed: the run does not answer" in desk.text


async def test_a_box_stays_while_only_numbers_move() -> None:
    records = scene("training")
    document = document_of(records)
    clock, feed = FakeClock(), FakeFeed(records)
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("x")
        feed.say(arrived(document.model_copy(update={"joined_ranks": document.joined_ranks})))
        await settled(pilot)
        assert isinstance(desk.app.screen, ConfirmScreen)


@pytest.mark.parametrize(("key", "kind"), [("x", "save"), ("X", "now")])
async def test_a_stop_wants_the_runs_name_typed(key: str, kind: str) -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press(key, "tab", "enter")
        assert isinstance(desk.app.screen, ConfirmScreen)
        assert feed.asked == []
        await desk.type("demo-trainin")
        assert desk.app.screen.answers.marked == 0
        await desk.type("g")
        assert desk.app.screen.answers.marked == 1
        await desk.press("enter")
        assert feed.asked == [("stop", {"kind": kind})]


async def test_enter_after_half_a_name_does_nothing_to_the_run() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("x")
        await desk.type("train")
        await desk.press("enter")
        assert feed.asked == []
        assert len(desk.app.screen_stack) == 1


async def test_letters_of_the_name_are_no_keys() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("x")
        await desk.type("cxqst")
        assert isinstance(desk.app.screen, ConfirmScreen)
        assert desk.app.screen.query_one(Input).value == "cxqst"
        assert feed.asked == []


async def test_evict_takes_the_rank_under_the_cursor_and_wants_its_name() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("down", "e")
        assert "rank 1" in desk.text
        await desk.type("rank 1")
        await desk.press("enter")
        assert feed.asked == [("evict", {"rank": "1"})]


async def test_evict_asks_which_rank_where_no_cursor_is() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("1", "e")
        assert isinstance(desk.app.screen, ChoiceScreen)
        await desk.press("down", "down", "enter")
        assert isinstance(desk.app.screen, ConfirmScreen)
        await desk.type("rank 2")
        await desk.press("enter")
        assert feed.asked == [("evict", {"rank": "2"})]


async def test_drain_asks_which_host_where_no_cursor_is_and_then_confirms() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("1", "d")
        await desk.press("down", "enter")
        assert "2 ranks of blue leave after the next average." in desk.text
        await desk.press("tab", "enter")
        assert feed.asked == [("drain", {"host": "blue"})]


@pytest.mark.parametrize("key", ["d", "e"])
async def test_no_choice_is_offered_where_each_would_be_refused(key: str) -> None:
    clock, feed = FakeClock(), FakeFeed(scene("waiting"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("1", key)
        assert not isinstance(desk.app.screen, ChoiceScreen)
        assert "▲ the run is not training yet: it is waiting" in desk.text


async def test_escape_in_a_choice_asks_nothing() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("1", "d", "escape")
        await desk.press("e", "escape")
        assert len(desk.app.screen_stack) == 1
        assert feed.asked == []


async def test_a_checkpoint_is_asked_for_at_once() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("c")
        assert feed.asked == [("checkpoint", {})]
        assert "it will be done" in desk.text


async def test_a_second_request_waits_for_the_answer_to_the_first() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    feed.held = asyncio.Event()
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("c", "c")
        assert len(feed.asked) == 1
        assert "the run has not answered yet" in desk.text
        feed.held.set()
        await settled(pilot)
        await desk.press("c")
        assert len(feed.asked) == 2


@pytest.mark.parametrize("key", ["c", "s", "x", "X", "d", "e"])
async def test_a_read_only_console_asks_for_nothing(key: str) -> None:
    records = [opened(is_read_only=True), *scene("training")[1:]]
    clock, feed = FakeClock(), FakeFeed(records)
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press(key)
        assert "this console was opened read-only" in desk.text
        assert feed.asked == []


async def test_nothing_is_asked_of_a_run_that_is_over() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("failed", at_s=100_000.0))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        for key in ("c", "x"):
            await desk.press(key)
            assert "▲ the run is over" in desk.text
        assert feed.asked == []


async def test_a_paste_that_contains_the_start_key_does_nothing() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("staging"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        desk.app.post_message(events.Paste("sssyyy\ns\t\n"))
        await settled(pilot)
        assert len(desk.app.screen_stack) == 1
        assert feed.asked == []


async def test_a_paste_into_a_box_is_no_yes() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("staging"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("s")
        clock.advance(1.0)
        desk.app.post_message(events.Paste("\t\n"))
        await settled(pilot)
        assert isinstance(desk.app.screen, ConfirmScreen)
        assert feed.asked == []


async def test_a_burst_of_keys_from_a_terminal_without_paste_marks_starts_nothing() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("staging"))
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        for key in ("s", "tab", "enter", "s", "tab", "enter"):
            await desk.press(key, after_s=0.02)
        assert feed.asked == []


async def test_the_box_shows_while_the_picture_is_held_what_is_so_now() -> None:
    records = scene("staging")
    document = document_of(records)
    clock, feed = FakeClock(), FakeFeed(records)
    async with console(feed, clock=clock) as pilot:
        desk = desk_of(pilot, clock)
        await desk.press("space")
        feed.say(arrived(document.model_copy(update={"phase": ClusterPhase.TRAINING})))
        await settled(pilot)
        assert "staging" in desk.text
        await desk.press("s")
        assert len(desk.app.screen_stack) == 1, "the run is no longer to be started"
        assert feed.asked == []
