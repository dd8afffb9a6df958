"""The form judges as the command line does, and starts what the command line would."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import pytest
from console_support import (
    FakeFeed,
    arrived,
    console,
    document_of,
    scene,
    screen_text,
    settled,
)

from flodl_console.app import ConsoleApp
from flodl_console.feed.source import Feed
from flodl_console.run_form import FORM_FIELDS, FormReview, review_form, words_of
from flodl_console.screens.form import FormScreen
from flodl_console.settings import ConsoleSettings
from flodl_console.widgets.launch_line import LaunchLine
from flodl_console.widgets.notice_line import NoticeLine
from flodl_core.config.load import load_run
from flodl_core.errors import ConfigError, FlodlError

GOOD = {"job": "digits"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def review(typed: dict[str, str], tmp_path, **flags: object) -> FormReview:
    return review_form(typed, flags=flags, environ={}, directory=tmp_path)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ({"job": ""}, "job"),
        ({**GOOD, "mode": "nccl_async"}, "mode"),
        ({**GOOD, "mode": "fast"}, "mode"),
        ({**GOOD, "hosts": "0"}, "hosts"),
        ({**GOOD, "hosts": "two"}, "hosts"),
        ({**GOOD, "ranks_per_host": "0"}, "ranks_per_host"),
        ({**GOOD, "min_rank_start": "1"}, "min_rank_start"),
        ({**GOOD, "start_mode": "later"}, "start_mode"),
        ({**GOOD, "join_timeout_s": "-3"}, "join_timeout_s"),
        ({**GOOD, "join_timeout_s": "nan"}, "join_timeout_s"),
        ({**GOOD, "join_timeout_s": "300", "max_join_timeout_s": "200"}, "max_join_timeout_s"),
    ],
)
def test_a_bad_answer_is_refused_in_the_words_of_the_command_line(typed, name, tmp_path) -> None:
    judged = review(typed, tmp_path)
    with pytest.raises(ConfigError) as refused:
        load_run(
            {key: value or None for key, value in typed.items()},
            environ={},
            directory=tmp_path,
            needs_job=True,
        )
    assert judged.complaints == {name: refused.value.reason}
    assert judged.fix == refused.value.fix
    assert not judged.is_good


def test_what_is_wrong_elsewhere_is_told_with_its_source(tmp_path) -> None:
    judged = review_form(GOOD, flags={}, environ={"FLODL_EPOCHS": "no"}, directory=tmp_path)
    assert judged.complaints == {}
    assert "run.epochs" in judged.elsewhere
    assert "FLODL_EPOCHS" in judged.elsewhere


def test_a_target_below_the_quorum_is_refused_as_soon_as_the_quorum_is_typed(tmp_path) -> None:
    judged = review({**GOOD, "min_rank_start": "4"}, tmp_path, target_ranks="3")
    assert "target_ranks" in judged.elsewhere
    assert not judged.is_good


def test_good_answers_become_words_of_headless(tmp_path) -> None:
    judged = review(
        {
            **GOOD,
            "mode": "cpu_sync",
            "hosts": "2",
            "ranks_per_host": "4",
            "min_rank_start": " 3 ",
            "start_mode": "",
        },
        tmp_path,
        epochs="4",
        seed="2",
    )
    assert judged.words[0] == "headless"
    assert set(judged.words[1:]) == {
        "digits",
        "--mode=cpu_sync",
        "--hosts=2",
        "--ranks-per-host=4",
        "--min-rank-start=3",
        "--epochs=4",
        "--seed=2",
    }


def test_the_words_come_to_the_same_settings_as_the_answers(tmp_path) -> None:
    flags = {
        "job": "synthetic",
        "job_args": ["step_ms=5,5,20", "note=-a b"],
        "open_admission": True,
        "require_token": None,
        "pin_counts": "10,20",
        "net_timeout_scale": "2",
        "on_event": "-x --y",
    }
    words = words_of(flags)
    assert words[0] == "synthetic"
    assert "--open-admission" in words
    assert "--job-arg=note=-a b" in words
    assert "--net-timeout-scale=2" in words
    assert "--on-event=-x --y" in words
    assert words_of({"require_token": False}) == ("--no-require-token",)


def test_what_is_not_typed_is_shown_as_it_would_be_taken(tmp_path) -> None:
    shown = review({"job": ""}, tmp_path, start_mode="manual").placeholders
    assert shown["hosts"] == "1"
    assert shown["join_timeout_s"] == "300"
    assert shown["max_join_timeout_s"] == "86400"
    assert "job" not in shown


def test_each_field_is_a_setting_with_a_meaning() -> None:
    assert [asked.label for asked in FORM_FIELDS] == [
        "job",
        "mode",
        "hosts",
        "ranks",
        "quorum",
        "start",
        "window, s",
        "cap, s",
    ]
    assert all(asked.meaning for asked in FORM_FIELDS)


class Launcher:
    """Remembers what it was to start, and answers as it was told."""

    def __init__(self, answer: Feed | FlodlError) -> None:
        self.answer = answer
        self.asked: list[Sequence[str]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, judged: FormReview) -> Feed:
        self.asked.append(judged.words)
        await self.may_answer.wait()
        if isinstance(self.answer, FlodlError):
            raise self.answer
        return self.answer


async def press(pilot, *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


@pytest.mark.anyio
@pytest.mark.slow
class TestTheScreen:
    async def test_it_complains_at_each_key_and_not_after_it(self) -> None:
        async with console(None, launch=Launcher(FakeFeed())) as pilot:
            assert "✗ no job was given" in screen_text(pilot)
            assert "Launch (not yet: see above)" in screen_text(pilot)
            await press(pilot, *"digits")
            assert "✗" not in screen_text(pilot)
            assert "flodl headless digits" in screen_text(pilot)
            await press(pilot, "enter", "enter", "x")
            assert "✗ is not a whole number" in screen_text(pilot)

    async def test_the_command_line_is_filled_in(self) -> None:
        settings = ConsoleSettings(job="charlm", launch_flags={"hosts": "2", "epochs": "3"})
        async with console(None, settings=settings, launch=Launcher(FakeFeed())) as pilot:
            text = screen_text(pilot)
            assert "charlm" in text
            assert "--hosts=2" in text
            assert "--epochs=3" in text

    async def test_enter_goes_through_the_fields_and_launches_at_the_end(self) -> None:
        feed = FakeFeed(scene("waiting"))
        launcher = Launcher(feed)
        async with console(None, launch=launcher) as pilot:
            await press(pilot, *"digits", *["enter"] * len(FORM_FIELDS))
            assert launcher.asked == []
            await press(pilot, "enter")
            assert launcher.asked == [("headless", "digits")]
            assert isinstance(pilot.app, ConsoleApp)
            assert pilot.app.feed is feed
            assert pilot.app.current_mode == "window"
            assert "2 joined" in screen_text(pilot)

    async def test_a_bad_form_does_not_launch_and_leads_to_the_bad_field(self) -> None:
        launcher = Launcher(FakeFeed())
        async with console(None, launch=launcher) as pilot:
            await press(pilot, *["enter"] * len(FORM_FIELDS), "enter")
            assert launcher.asked == []
            assert isinstance(pilot.app.screen, FormScreen)
            focused = pilot.app.screen.focused
            assert focused is not None
            assert focused.name == "job"

    async def test_the_childs_own_words_are_shown_and_the_form_stays(self) -> None:
        failed = FlodlError("port 1337 is taken by process 7", fix="give --port 0")
        launcher = Launcher(failed)
        async with console(None, launch=launcher) as pilot:
            await press(pilot, *"digits", *["enter"] * len(FORM_FIELDS), "enter")
            assert "✗ port 1337 is taken by process 7" in screen_text(pilot)
            assert "fix: give --port 0" in screen_text(pilot)
            launcher.answer = FakeFeed(scene("waiting"))
            assert "being started" not in screen_text(pilot)
            await press(pilot, "enter")
            assert len(launcher.asked) == 2
            assert pilot.app.current_mode == "window"

    async def test_a_run_is_launched_once_however_often_enter_is_pressed(self) -> None:
        launcher = Launcher(FakeFeed(scene("waiting")))
        launcher.may_answer.clear()
        async with console(None, launch=launcher) as pilot:
            await press(pilot, *"digits", *["enter"] * len(FORM_FIELDS))
            await press(pilot, "enter", "enter", "enter")
            assert len(launcher.asked) == 1
            assert "the run is being started" in screen_text(pilot)
            launcher.may_answer.set()
            await settled(pilot)
            assert pilot.app.current_mode == "window"

    async def test_keys_of_a_run_rest_while_there_is_none(self) -> None:
        async with console(None, launch=Launcher(FakeFeed())) as pilot:
            await press(pilot, "escape")
            for key in ("1", "2", "5", "s", "x", "c", "y", "w", "a", "space"):
                await press(pilot, key, "escape")
                assert pilot.app.current_mode == "form"

    @pytest.mark.parametrize("key", ["space", "w", "d", "e", "s", "c", "x", "y", "g", "f", "a"])
    async def test_no_key_of_a_run_acts_on_the_launch_line(self, key: str) -> None:
        async with console(None, launch=Launcher(FakeFeed())) as pilot:
            pilot.app.screen.query_one(LaunchLine).focus()
            await press(pilot, key)
            assert len(pilot.app.screen_stack) == 1
            assert pilot.app.screen.query_one(NoticeLine).phrase.text == ""

    async def test_a_space_on_the_form_holds_no_picture_of_the_run_that_it_starts(self) -> None:
        records = scene("waiting")
        feed = FakeFeed(records)
        settings = ConsoleSettings(job="digits")
        async with console(None, launch=Launcher(feed), settings=settings) as pilot:
            pilot.app.screen.query_one(LaunchLine).focus()
            await press(pilot, "space", "enter")
            assert pilot.app.current_mode == "window"
            assert "2 joined" in screen_text(pilot)
            assert "held" not in screen_text(pilot)
            feed.say(arrived(document_of(records).model_copy(update={"joined_ranks": 3})))
            await settled(pilot)
            assert "3 joined" in screen_text(pilot)

    async def test_a_picture_that_is_held_is_let_go_for_another_run(self) -> None:
        async with console(FakeFeed(scene("waiting"))) as pilot:
            assert isinstance(pilot.app, ConsoleApp)
            await press(pilot, "space")
            assert "‖ held" in screen_text(pilot)
            pilot.app.attach(FakeFeed(scene("training")))
            await settled(pilot)
            assert "‖ held" not in screen_text(pilot)
            assert pilot.app.current_mode == "training"

    async def test_the_key_bar_says_what_enter_does_and_a_mark_where_one_types(self) -> None:
        async with console(None, launch=Launcher(FakeFeed())) as pilot:
            await press(pilot, *"digits")
            assert "→job" in screen_text(pilot)
            assert "Enter Next field" in screen_text(pilot)
            await press(pilot, *["enter"] * len(FORM_FIELDS))
            assert "→job" not in screen_text(pilot)
            assert "Enter Launch" in screen_text(pilot)

    async def test_what_a_field_means_is_whole_at_80_columns(self) -> None:
        async with console(None, launch=Launcher(FakeFeed())) as pilot:
            await press(pilot, *"digits")
            shown = screen_text(pilot)
            assert "…" not in shown
            assert all(asked.meaning in shown for asked in FORM_FIELDS)

    async def test_arrows_and_tab_move_between_fields(self) -> None:
        async with console(None, launch=Launcher(FakeFeed())) as pilot:
            names = []
            for key in ("down", "tab", "up", "shift+tab"):
                await press(pilot, key)
                assert pilot.app.screen.focused is not None
                names.append(pilot.app.screen.focused.name)
            assert names == ["mode", "hosts", "mode", "job"]


@pytest.mark.processes
@pytest.mark.slow
def test_the_command_line_takes_the_words_that_the_form_makes(tmp_path) -> None:
    judged = review(
        {"job": "no-such-recipe", "hosts": "2", "start_mode": "manual"},
        tmp_path,
        job_args=["depth=4"],
        run_dir=str(tmp_path / "runs"),
    )
    done = subprocess.run(
        [sys.executable, "-m", "flodl_core.cli.main", *judged.words],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    assert "no-such-recipe" in done.stderr
    assert "no such option" not in done.stderr.lower()
