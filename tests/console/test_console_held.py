"""A held picture: the screen stands, and everything that one acts upon goes on."""

import pytest
from console_support import (
    FakeClock,
    FakeFeed,
    app_of,
    arrived,
    console,
    document_of,
    link,
    scene,
    screen_text,
    settled,
)
from textual.pilot import Pilot

from flodl_console.messages import RecordArrived
from flodl_console.screens.confirm import ConfirmScreen
from flodl_console.view.actions import ActionId
from flodl_console.view.records import ClockTicked, LinkState
from flodl_core.ids import ClusterPhase, RankPhase
from flodl_core.telemetry.state import EndState

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def press(pilot: Pilot[int], clock: FakeClock, *keys: str) -> None:
    for key in keys:
        clock.advance(0.4)
        await pilot.press(key)
        await settled(pilot)


async def tick(pilot: Pilot[int], clock: FakeClock, *, by_s: float) -> None:
    clock.advance(by_s)
    app_of(pilot).post_message(RecordArrived(ClockTicked(at_s=clock())))
    await settled(pilot)


def first_line(pilot: Pilot[int]) -> str:
    return screen_text(pilot).splitlines()[0]


async def test_the_first_line_says_that_it_is_held_and_how_old_it_is_for_as_long_as_it_is() -> None:
    records = scene("training")
    clock, feed = FakeClock(), FakeFeed(records)
    async with console(feed, clock=clock) as pilot:
        await press(pilot, clock, "space")
        clock.advance(191.6)
        feed.say(arrived(document_of(records), at_s=clock()))
        await settled(pilot)
        assert first_line(pilot).endswith("● live  ‖ held, 3 m 12 s old")
        await press(pilot, clock, "5")
        assert "‖ held, 3 m 12 s old" in first_line(pilot)
        await press(pilot, clock, "space")
        assert first_line(pilot).endswith("● live")


@pytest.mark.parametrize(
    ("size", "shown"),
    [((60, 16), "● live  ‖ held, 3 m 12 s old"), ((200, 50), "● live  ‖ held, 3 m 12 s old")],
)
async def test_it_is_said_in_full_at_every_width(size: tuple[int, int], shown: str) -> None:
    records = scene("training")
    clock, feed = FakeClock(), FakeFeed(records)
    async with console(feed, clock=clock, size=size) as pilot:
        await press(pilot, clock, "space")
        clock.advance(191.6)
        feed.say(arrived(document_of(records), at_s=clock()))
        await settled(pilot)
        assert shown in first_line(pilot)


async def test_a_run_that_answers_no_more_is_told_although_the_picture_is_held() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        await press(pilot, clock, "space")
        feed.say(link(LinkState.DISCONNECTED, "no launcher answers", retry_in_s=5.0))
        await settled(pilot)
        lines = screen_text(pilot).splitlines()
        assert "✗ disconnected  ‖ held" in lines[0]
        assert "no launcher answers" in lines[1]
        feed.say(link(LinkState.ENDED, "the launcher was killed"))
        await settled(pilot)
        lines = screen_text(pilot).splitlines()
        assert "✗ gone  ‖ held" in lines[0]
        assert "the launcher was killed" in lines[1]
        assert "train" in " ".join(lines[2:])


async def test_a_run_that_falls_silent_is_called_stale_although_the_picture_is_held() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        await press(pilot, clock, "space")
        await tick(pilot, clock, by_s=12.0)
        assert "▲ stale  ‖ held, 12 s old" in first_line(pilot)


async def test_the_end_of_the_run_is_told_although_the_picture_is_held() -> None:
    records = scene("training")
    over = document_of(records).model_copy(
        update={
            "phase": ClusterPhase.DONE,
            "end": EndState(exit_code=0, reason="finished"),
        }
    )
    clock, feed = FakeClock(), FakeFeed(records)
    async with console(feed, clock=clock) as pilot:
        await press(pilot, clock, "space")
        feed.say(arrived(over))
        await settled(pilot)
        assert "the run has ended since then; Space shows it" in screen_text(pilot).splitlines()[1]
        assert app_of(pilot).current_mode == "training"
        await press(pilot, clock, "space")
        assert "the run has ended since then" not in screen_text(pilot)
        assert "finished" in screen_text(pilot)


async def test_a_box_over_a_held_picture_closes_when_ranks_die_and_nothing_is_sent() -> None:
    records = scene("training")
    document = document_of(records)
    clock, feed = FakeClock(), FakeFeed(records)
    async with console(feed, clock=clock) as pilot:
        await press(pilot, clock, "space", "e")
        assert isinstance(app_of(pilot).screen, ConfirmScreen)
        dead = tuple(
            rank.model_copy(update={"state": RankPhase.LOST}) if rank.rank in (1, 2) else rank
            for rank in document.ranks
        )
        feed.say(arrived(document.model_copy(update={"ranks": dead})))
        await settled(pilot)
        assert not isinstance(app_of(pilot).screen, ConfirmScreen)
        assert "closed: 2 ranks are alive now, not 4" in screen_text(pilot)
        await press(pilot, clock, "enter")
        assert feed.asked == []


async def test_a_box_over_a_held_picture_closes_when_the_run_falls_silent() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        await press(pilot, clock, "space", "x")
        assert isinstance(app_of(pilot).screen, ConfirmScreen)
        await tick(pilot, clock, by_s=12.0)
        assert len(app_of(pilot).screen_stack) == 1
        assert "closed: the run does not answer" in screen_text(pilot)


async def test_what_is_offered_under_a_held_picture_is_what_the_run_would_take_now() -> None:
    records = scene("staging")
    training = document_of(records).model_copy(update={"phase": ClusterPhase.TRAINING})
    clock, feed = FakeClock(), FakeFeed(records)
    async with console(feed, clock=clock) as pilot:
        await press(pilot, clock, "space")
        feed.say(arrived(training))
        await settled(pilot)
        front = app_of(pilot).front
        assert front is not None
        offered = {one.action: one.is_enabled for one in front.offers}
        assert not offered[ActionId.START]
        assert "staging" in screen_text(pilot)
