"""The shell: one view, the screen that fits, keys that rest while one types, honest about age."""

import pytest
from console_support import (
    FakeClock,
    FakeFeed,
    app_of,
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
from textual.command import CommandPalette
from textual.widgets import Input

from flodl_console.messages import RankChosen, RecordArrived
from flodl_console.settings import ConsoleSettings, ThemeName
from flodl_console.view.records import ClockTicked, EventsArrived, LinkState, PlaybackMoved
from flodl_core.ids import ClusterPhase
from flodl_core.telemetry.records import EventPage

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def in_phase(records, phase: ClusterPhase):
    return arrived(document_of(records).model_copy(update={"phase": phase}))


@pytest.mark.parametrize(
    ("scenario", "at_s", "mode"),
    [
        ("waiting", None, "window"),
        ("staging", None, "window"),
        ("training", None, "training"),
        ("lost", None, "training"),
        ("done", 100_000.0, "window"),
        ("failed", 100_000.0, "window"),
    ],
)
async def test_it_opens_on_the_screen_that_fits_the_phase(
    scenario: str, at_s: float | None, mode: str
) -> None:
    async with console(FakeFeed(scene(scenario, at_s=at_s))) as pilot:
        assert app_of(pilot).current_mode == mode


async def test_what_arrives_while_it_closes_is_left_alone() -> None:
    """The widgets are gone by then; a record that asked them would be a bug's traceback."""
    records = scene("training")
    async with console(FakeFeed(records)) as pilot:
        app = app_of(pilot)
    before = app.latest
    app.take_record(RecordArrived(in_phase(records, ClusterPhase.DONE)))
    app.push_view()
    assert app.latest is before


async def test_it_follows_the_phase_until_a_person_chooses() -> None:
    records = scene("staging")
    feed = FakeFeed(records)
    async with console(feed) as pilot:
        assert app_of(pilot).current_mode == "window"
        feed.say(in_phase(records, ClusterPhase.TRAINING))
        await settled(pilot)
        assert app_of(pilot).current_mode == "training"
        await pilot.press("5")
        feed.say(in_phase(records, ClusterPhase.FAILED))
        await settled(pilot)
        assert app_of(pilot).current_mode == "events"


async def test_no_screen_is_taken_from_under_a_box() -> None:
    records = scene("staging")
    feed = FakeFeed(records)
    async with console(feed) as pilot:
        await pilot.press("question_mark")
        await settled(pilot)
        feed.say(in_phase(records, ClusterPhase.TRAINING))
        await settled(pilot)
        assert app_of(pilot).current_mode == "window"
        await pilot.press("q")
        feed.say(in_phase(records, ClusterPhase.TRAINING))
        await settled(pilot)
        assert app_of(pilot).current_mode == "training"


async def test_a_screen_shows_what_came_while_another_was_in_front() -> None:
    records = scene("waiting")
    document = document_of(records)
    feed = FakeFeed(records)
    async with console(feed) as pilot:
        await pilot.press("5", "1", "5")
        feed.say(arrived(document.model_copy(update={"joined_ranks": 3})))
        await settled(pilot)
        await pilot.press("1")
        await settled(pilot)
        assert "3 joined · quorum 3 (met)" in screen_text(pilot)


async def test_a_chosen_rank_is_shown_on_the_rank_screen() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        app_of(pilot).post_message(RankChosen(2))
        await settled(pilot)
        assert app_of(pilot).current_mode == "rank"
        assert "rank 2 on blue" in screen_text(pilot)


async def test_loading_says_so() -> None:
    async with console(FakeFeed([opened()])) as pilot:
        text = screen_text(pilot)
        assert "loading" in text
        assert "nothing was received from the run yet" in text


async def test_a_run_that_falls_silent_is_called_stale_with_the_age_of_what_is_shown() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        assert "● live" in screen_text(pilot)
        clock.advance(12.0)
        app_of(pilot).post_message(RecordArrived(ClockTicked(at_s=clock())))
        await settled(pilot)
        text = screen_text(pilot)
        assert "▲ stale" in text
        assert "12" in text.splitlines()[1]


async def test_a_lost_run_says_why_and_when_it_is_tried_again() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        feed.say(link(LinkState.DISCONNECTED, "connection refused", retry_in_s=4.0))
        await settled(pilot)
        lines = screen_text(pilot).splitlines()
        assert "disconnected" in lines[0]
        assert "connection refused" in lines[1]
        feed.say(arrived(document_of(scene("training"))))
        await settled(pilot)
        assert "● live" in screen_text(pilot)


async def test_the_end_of_a_run_is_told_with_its_exit_code_and_what_to_do() -> None:
    async with console(FakeFeed(scene("failed", at_s=100_000.0))) as pilot:
        text = screen_text(pilot)
        assert "failed (exit code 1)" in text
        assert "SIGKILL" in text
        assert "next" in text
        assert "flodl console --replay" in text


async def test_a_held_picture_stands_while_the_run_goes_on() -> None:
    records = scene("waiting")
    document = document_of(records)
    feed = FakeFeed(records)
    async with console(feed) as pilot:
        await pilot.press("space")
        feed.say(arrived(document.model_copy(update={"joined_ranks": 3})))
        await settled(pilot)
        assert "2 joined" in screen_text(pilot)
        assert "held" in screen_text(pilot)
        await pilot.press("space")
        await settled(pilot)
        assert "3 joined" in screen_text(pilot)


async def test_while_nothing_arrives_the_clock_still_ticks() -> None:
    clock, feed = FakeClock(), FakeFeed(scene("training"))
    async with console(feed, clock=clock) as pilot:
        clock.advance(5.0)
        await pilot.pause(1.2)
        await settled(pilot)
        assert app_of(pilot).latest.now_s == 1005.0


async def test_no_key_acts_while_one_types() -> None:
    feed = FakeFeed(scene("training"))
    async with console(feed) as pilot:
        await pilot.press("5", "slash")
        await pilot.press("1", "s", "c", "x", "q", "question_mark", "space", "up", "down")
        await settled(pilot)
        assert app_of(pilot).current_mode == "events"
        assert app_of(pilot).screen.query_one(Input).value == "1scxq? "
        assert feed.asked == []
        assert app_of(pilot).is_running


async def test_escape_leaves_the_field_and_keys_act_again() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        await pilot.press("5", "slash", "h", "escape", "1")
        await settled(pilot)
        assert app_of(pilot).current_mode == "window"


async def test_a_paste_outside_a_field_is_ignored() -> None:
    feed = FakeFeed(scene("training"))
    async with console(feed) as pilot:
        app_of(pilot).post_message(events.Paste("qqq5cx"))
        await settled(pilot)
        assert app_of(pilot).current_mode == "training"
        assert app_of(pilot).is_running
        assert feed.asked == []


async def test_a_paste_into_the_search_is_text() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        await pilot.press("5", "slash")
        app_of(pilot).post_message(events.Paste("epoch"))
        await settled(pilot)
        assert app_of(pilot).screen.query_one(Input).value == "epoch"


async def test_the_palette_offers_every_action_and_runs_the_chosen_one() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        await pilot.press("a")
        await settled(pilot)
        assert isinstance(app_of(pilot).screen, CommandPalette)
        await pilot.press(*"topology")
        await pilot.pause(0.3)
        await settled(pilot)
        await pilot.press("enter")
        await settled(pilot)
        assert app_of(pilot).current_mode == "topology"


async def test_the_theme_key_walks_all_themes_and_comes_round() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        seen = []
        for _ in ThemeName:
            seen.append(app_of(pilot).theme)
            await pilot.press("t")
        await settled(pilot)
        assert seen == [name.value for name in ThemeName]
        assert app_of(pilot).theme == "dark"
        assert "theme: dark" in screen_text(pilot)


@pytest.mark.parametrize("theme", list(ThemeName))
async def test_it_starts_in_the_theme_that_was_asked_for(theme: ThemeName) -> None:
    settings = ConsoleSettings(theme=theme)
    async with console(FakeFeed(scene("training")), settings=settings) as pilot:
        assert app_of(pilot).theme == theme


@pytest.mark.parametrize("mode", ["1", "2", "3", "4", "5", "question_mark", "x", "w", "a"])
async def test_in_ascii_no_other_character_is_drawn(mode: str) -> None:
    settings = ConsoleSettings(is_ascii=True)
    async with console(FakeFeed(scene("lost")), settings=settings) as pilot:
        await pilot.press(mode)
        await settled(pilot)
        assert screen_text(pilot).isascii()


@pytest.mark.parametrize("mode", ["1", "2", "3", "4", "5", "question_mark", "x", "a"])
async def test_without_colour_no_colour_is_drawn(mode: str) -> None:
    settings = ConsoleSettings(is_colourless=True)
    async with console(FakeFeed(scene("lost")), settings=settings) as pilot:
        await pilot.press(mode)
        await settled(pilot)
        size = app_of(pilot).size
        for strip in app_of(pilot).screen._compositor.render_strips(size):
            for segment in strip:
                style = segment.style
                if style is not None and style.color is not None:
                    assert style.color.name == "default"
                if style is not None and style.bgcolor is not None:
                    assert style.bgcolor.name == "default"


@pytest.mark.parametrize("size", [(59, 24), (80, 15), (20, 5)])
async def test_a_terminal_that_is_too_small_says_what_it_needs_and_has(
    size: tuple[int, int],
) -> None:
    feed = FakeFeed(scene("staging"))
    async with console(feed, size=size) as pilot:
        words = screen_text(pilot)
        assert "needs 60×16" in words
        assert f"has {size[0]}×{size[1]}" in words
        await pilot.press("s", "5")
        await settled(pilot)
        assert app_of(pilot).current_mode == "window", "what is hidden takes no keys"
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        assert "terminal too small" not in screen_text(pilot)
        await pilot.press("5")
        await settled(pilot)
        assert app_of(pilot).current_mode == "events"


async def test_the_notice_of_an_answer_goes_by_itself_and_the_newest_counts() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        app_of(pilot).notice("first")
        app_of(pilot).notice("second", is_problem=True)
        await settled(pilot)
        assert "▲ second" in screen_text(pilot)
        assert "first" not in screen_text(pilot)


async def test_a_failing_feed_ends_the_console_with_its_exception() -> None:
    feed = FakeFeed(scene("training"))
    feed.error = RuntimeError("a bug of ours")
    with pytest.raises(Exception, match="a bug of ours"):
        async with console(feed):
            pass


async def test_a_traceback_shows_no_local_variable_as_it_may_be_a_token(capsys) -> None:
    def failing() -> None:
        token = "0f1e2d3c4b5a" + "69788796a5b4c3d2e1f0"
        raise RuntimeError(f"a bug with {len(token)} characters")

    async def meet_the_bug() -> None:
        async with console(FakeFeed(scene("training"))) as pilot:
            app_of(pilot).call_later(failing)
            await settled(pilot)

    with pytest.raises(RuntimeError, match="a bug with 32 characters"):
        await meet_the_bug()
    printed = "".join(capsys.readouterr())
    assert "a bug with 32 characters" in printed
    assert "0f1e2d3c4b5a69788796a5b4c3d2e1f0" not in printed


@pytest.mark.parametrize("keys", [("5", "slash"), ("a",)])
async def test_no_cursor_blinks(keys: tuple[str, ...]) -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        await pilot.press(*keys)
        await settled(pilot)
        focused = app_of(pilot).screen.focused
        assert isinstance(focused, Input)
        assert not focused.cursor_blink


@pytest.mark.parametrize("width", [60, 80])
async def test_why_a_run_is_gone_stands_whole_at_every_width(width: int) -> None:
    killed = "the launcher ended without a word: it was killed, or its machine failed; bye"
    records = [*scene("training"), link(LinkState.ENDED, killed)]
    async with console(FakeFeed(records), size=(width, 24)) as pilot:
        first, *rest = screen_text(pilot).splitlines()
        assert first.endswith("✗ gone")
        assert f"gone: {killed}" in " ".join(" ".join(rest).split())
        assert "the run is gone, nothing trains any more" in " ".join(" ".join(rest).split())
        assert "● training" not in screen_text(pilot)


async def test_a_console_that_only_looks_says_so_in_its_first_line() -> None:
    records = [opened(is_read_only=True), *scene("training")[1:]]
    async with console(FakeFeed(records)) as pilot:
        assert screen_text(pilot).splitlines()[0].endswith("● live, read-only")


async def test_no_key_acts_once_the_console_is_being_left() -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        app = app_of(pilot)
        assert app.check_action("export", ())
        app.action_detach()
        assert not app.check_action("export", ())


async def test_leaving_closes_the_feed() -> None:
    feed = FakeFeed(scene("training"))
    async with console(feed) as pilot:
        await pilot.press("q")
        await settled(pilot)
    assert feed.is_closed


def test_only_what_a_newer_record_says_anew_is_replaced() -> None:
    training = document_of(scene("training"))
    other = training.model_copy(
        update={"run": training.run.model_copy(update={"id": "ffff000000000000"})}
    )
    tick = RecordArrived(ClockTicked(at_s=2.0))
    page = RecordArrived(EventsArrived(page=EventPage(oldest_seq=0, newest_seq=0), at_s=1.0))
    position = RecordArrived(
        PlaybackMoved(position_s=1.0, length_s=2.0, speed=1.0, is_paused=False)
    )
    document = RecordArrived(arrived(training))
    assert tick.can_replace(RecordArrived(ClockTicked(at_s=1.0)))
    assert position.can_replace(position)
    assert document.can_replace(RecordArrived(arrived(training)))
    assert not document.can_replace(RecordArrived(arrived(other)))
    assert not page.can_replace(page)
    assert not tick.can_replace(document)
    assert not tick.can_replace(RankChosen(1))
