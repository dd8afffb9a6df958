"""Which feed a command line means, and what is said when the console is left."""

from pathlib import Path

import pytest
from console_support import link, opened, scene

from flodl_console.feed.demo import DemoFeed
from flodl_console.feed.live import LiveFeed
from flodl_console.feed.replay import ReplayFeed
from flodl_console.opening import open_feed
from flodl_console.running import farewell
from flodl_console.settings import ConsoleSettings
from flodl_console.view.fold import fold
from flodl_console.view.model import ConsoleView, initial
from flodl_console.view.records import LinkState, SourceKind
from flodl_core.errors import ConfigError
from flodl_core.ids import RunId
from flodl_core.telemetry.replay import NoRecordError
from flodl_core.telemetry.run_directory import RunDirectory


def view_of(*records) -> ConsoleView:
    view = initial()
    for record in records:
        view = fold(view, record)
    return view


def test_a_scenario_is_played() -> None:
    feed = open_feed(ConsoleSettings(demo="lost", demo_ranks=8, seed=3))
    assert isinstance(feed, DemoFeed)


def test_a_scenario_that_is_none_is_refused_before_anything_is_drawn() -> None:
    with pytest.raises(ConfigError):
        open_feed(ConsoleSettings(demo="no such"))


def test_a_record_is_played_again(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    (records / "root.jsonl").touch()
    assert isinstance(open_feed(ConsoleSettings(replay=tmp_path)), ReplayFeed)
    assert isinstance(open_feed(ConsoleSettings(replay=records)), ReplayFeed)


def test_a_directory_without_a_record_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(NoRecordError, match="holds no record of a run"):
        open_feed(ConsoleSettings(replay=tmp_path))
    with pytest.raises(NoRecordError, match="is no directory"):
        open_feed(ConsoleSettings(replay=tmp_path / "none"))


def test_an_address_is_a_live_run(tmp_path: Path) -> None:
    settings = ConsoleSettings(attach="127.0.0.1:4321", run_dir=tmp_path)
    assert isinstance(open_feed(settings), LiveFeed)


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        open_feed(ConsoleSettings(attach="127.0.0.1:none", run_dir=tmp_path))


def test_a_job_gets_the_form_even_where_a_run_is_on(tmp_path: Path) -> None:
    with_run(tmp_path)
    assert open_feed(ConsoleSettings(job="digits", run_dir=tmp_path)) is None


def test_without_a_job_the_newest_live_run_is_shown(tmp_path: Path) -> None:
    run = with_run(tmp_path)
    assert isinstance(open_feed(ConsoleSettings(run_dir=tmp_path)), LiveFeed)
    run.close()
    assert open_feed(ConsoleSettings(run_dir=tmp_path)) is None


def with_run(base: Path) -> RunDirectory:
    run = RunDirectory.create(base, "night", RunId("0123456789abcdef"))
    run.write_token("0f1e2d3c4b5a69788796a5b4c3d2e1f0")
    run.write_port(4321, address="127.0.0.1:4321")
    return run


def test_a_run_that_goes_on_is_found_again() -> None:
    words = farewell(view_of(*scene("training")))
    assert "training goes on" in words
    assert "flodl console" in words
    assert "flodl stop" in words


def test_a_run_that_has_ended_says_how() -> None:
    words = farewell(view_of(*scene("failed", at_s=100_000.0)))
    assert words.startswith("demo-failed has ended")
    assert words.endswith("(exit code 1)")


def test_of_a_run_that_was_killed_it_is_not_said_that_it_goes_on() -> None:
    killed = view_of(*scene("training"), link(LinkState.ENDED, "the launcher was killed"))
    assert farewell(killed) == "demo-training is gone: the launcher was killed"


def test_of_a_run_that_does_not_answer_nothing_is_promised() -> None:
    mute = view_of(*scene("training"), link(LinkState.DISCONNECTED, "no answer"))
    assert "goes on is not known" in farewell(mute)


def test_nothing_is_said_of_a_playback_or_of_nothing() -> None:
    played = [opened(SourceKind.DEMO), *scene("training")[1:]]
    assert farewell(view_of(*played)) == ""
    assert farewell(initial()) == ""
    assert farewell(view_of(opened())) == ""


def test_settings_print_no_flag_and_no_token_file() -> None:
    shown = repr(ConsoleSettings(token_file=Path("secret"), launch_flags={"token": "secret"}))
    assert "secret" not in shown
