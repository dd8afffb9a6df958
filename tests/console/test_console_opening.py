"""Which feed a command line means, and what is said when the console is left."""

import os
import subprocess
from pathlib import Path

import pytest
from console_support import link, opened, scene

from flodl_console.attach import launched_feed
from flodl_console.feed.demo import DemoFeed
from flodl_console.feed.live import LiveFeed
from flodl_console.feed.replay import ReplayFeed
from flodl_console.launch import LaunchedRun
from flodl_console.opening import launch_of, launch_run, open_feed
from flodl_console.running import farewell
from flodl_console.settings import ConsoleSettings
from flodl_console.view.fold import fold
from flodl_console.view.model import ConsoleView, initial
from flodl_console.view.records import LinkState, SourceKind, SourceOpened
from flodl_core.errors import ConfigError
from flodl_core.ids import RunId
from flodl_core.run_finding import PortNotOpenError
from flodl_core.telemetry.replay import NoRecordError
from flodl_core.telemetry.run_directory import RunDirectory

TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
    run.write_token(TOKEN)
    run.write_port(4321, address="127.0.0.1:4321")
    return run


def young_run(base: Path, *, run_id: str = "fedcba9876543210") -> RunDirectory:
    """A run that is live and has not opened its port yet, newer than all others."""
    run = RunDirectory.create(base, "day", RunId(run_id))
    newest_ns = max(path.stat().st_mtime_ns for path in base.glob("*/live"))
    os.utime(run.path / "live", ns=(newest_ns + 1_000, newest_ns + 1_000))
    return run


def test_a_run_that_has_not_opened_its_port_yet_is_named_and_no_form_is_shown(
    tmp_path: Path,
) -> None:
    run = young_run(tmp_path)
    with pytest.raises(PortNotOpenError, match="day-fedcba9876543210 has not opened its port"):
        open_feed(ConsoleSettings(run_dir=tmp_path))
    run.close()
    assert open_feed(ConsoleSettings(run_dir=tmp_path)) is None


def test_a_younger_run_without_a_port_hides_none_that_can_be_asked(tmp_path: Path) -> None:
    with_run(tmp_path)
    young_run(tmp_path)
    feed = open_feed(ConsoleSettings(run_dir=tmp_path))
    assert isinstance(feed, LiveFeed)
    assert feed.join_token == TOKEN


@pytest.fixture
def launched(tmp_path: Path) -> LaunchedRun:
    """A run that this console started; the process that did it is over."""
    run = with_run(tmp_path)
    process = subprocess.Popen(["true"])
    process.wait()
    return LaunchedRun(directory=run, output_path=tmp_path / "out", pid=1, process=process)


@pytest.mark.parametrize("is_read_only", [True, False])
@pytest.mark.anyio
async def test_a_run_that_was_launched_is_asked_only_where_that_was_wanted(
    launched: LaunchedRun, is_read_only: bool
) -> None:
    feed = launched_feed(launched, is_read_only=is_read_only)
    opened_feed = await anext(feed.records())
    await feed.aclose()
    assert isinstance(opened_feed, SourceOpened)
    assert opened_feed.is_read_only is is_read_only
    assert feed.join_token == TOKEN


def test_what_the_form_launches_is_as_read_only_as_the_console() -> None:
    for is_read_only in (True, False):
        launch = launch_of(ConsoleSettings(is_read_only=is_read_only))
        assert launch.func is launch_run
        assert launch.keywords == {"is_read_only": is_read_only}


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
