"""Times of a run as people type them, and the keys that wind a playback."""

from dataclasses import replace

import pytest
from console_support import (
    FakeClock,
    FakeFeed,
    FakePlayback,
    console,
    moved,
    opened,
    scene,
    screen_text,
    settled,
)

from flodl_console.feed.demo import DemoFeed
from flodl_console.playing import BadTimeError, is_playback, parse_time
from flodl_console.screens.prompt import PromptScreen
from flodl_console.view.records import SourceKind


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1:30:00", 5400),
        ("90:00", 5400),
        ("0:05", 5),
        ("90m", 5400),
        ("1h 30m", 5400),
        ("1h30m5s", 5405),
        ("1 h 30 m", 5400),
        ("5 s", 5),
        ("5400", 5400),
        ("5400s", 5400),
        (" 2H ", 7200),
        ("0", 0),
    ],
)
def test_a_time_is_understood_as_people_type_it(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", " ", "soon", "1:2:3:4", "-5", "1.5h", "m", "5x", "1h 5x"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadTimeError, match="1:30:00"):
        parse_time(text)


def test_only_feeds_with_a_position_are_playbacks() -> None:
    assert is_playback(FakePlayback())
    assert is_playback(DemoFeed("waiting"))
    assert not is_playback(FakeFeed())
    assert not is_playback(None)


def playback() -> FakePlayback:
    return FakePlayback([opened(SourceKind.REPLAY), *scene("training")[1:], moved(600.0)])


@pytest.mark.anyio
@pytest.mark.slow
class TestTheKeys:
    async def test_a_typed_time_is_jumped_to(self) -> None:
        clock, feed = FakeClock(), playback()
        async with console(feed, clock=clock) as pilot:
            await pilot.press("g")
            clock.advance(1.0)
            await pilot.press(*"20m", "enter")
            await settled(pilot)
            assert feed.moves == [("seek", 1200.0)]

    async def test_a_bad_time_is_complained_of_and_the_box_stays(self) -> None:
        clock, feed = FakeClock(), playback()
        async with console(feed, clock=clock) as pilot:
            await pilot.press("g")
            clock.advance(1.0)
            await pilot.press(*"soon", "enter")
            await settled(pilot)
            assert isinstance(pilot.app.screen, PromptScreen)
            assert "give a time such as" in screen_text(pilot)
            await pilot.press("escape")
            await settled(pilot)
            assert feed.moves == []

    async def test_cancel_jumps_nowhere(self) -> None:
        clock, feed = FakeClock(), playback()
        async with console(feed, clock=clock) as pilot:
            await pilot.press("g")
            clock.advance(1.0)
            await pilot.press("5", "tab", "enter")
            await settled(pilot)
            assert feed.moves == []
            assert len(pilot.app.screen_stack) == 1

    async def test_a_paused_playback_goes_on(self) -> None:
        feed = playback()
        async with console(feed) as pilot:
            feed.say(moved(600.0, is_paused=True))
            await settled(pilot)
            await pilot.press("space")
            await settled(pilot)
            assert feed.moves == [("paused", 0.0)]

    async def test_speed_stays_between_a_quarter_and_64(self) -> None:
        feed = playback()
        async with console(feed) as pilot:
            await pilot.press("f")
            await settled(pilot)
            assert feed.moves[-1] == ("speed", 2.0)
            assert "plays 2 times as fast" in screen_text(pilot)
            for speed, key, wanted in ((64.0, "f", 64.0), (0.25, "F", 0.25), (8.0, "F", 4.0)):
                feed.say(moved_at(speed))
                await settled(pilot)
                await pilot.press(key)
                await settled(pilot)
                assert feed.moves[-1] == ("speed", wanted)

    @pytest.mark.parametrize("key", ["n", "b", "N", "B", "g", "f", "F"])
    async def test_a_live_run_cannot_be_wound_and_says_what_can(self, key: str) -> None:
        async with console(FakeFeed(scene("training"))) as pilot:
            await pilot.press(key)
            await settled(pilot)
            assert "flodl console --replay DIR" in screen_text(pilot)

    async def test_a_real_demo_plays_pauses_and_steps(self) -> None:
        async with console(DemoFeed("training", is_paused=True)) as pilot:
            assert "paused" in screen_text(pilot).splitlines()[0]
            before = pilot.app.latest.playback.position_s
            await pilot.press("n")
            await settled(pilot)
            await pilot.pause(0.2)
            assert pilot.app.latest.playback.position_s > before


def moved_at(speed: float):
    return replace(moved(600.0), speed=speed)
