"""A run started from the console: attached to, told from its own words, outliving it."""

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from console_feeds import FakeClock, reading, until

from flodl_console.attach import find_live_feed, launched_feed
from flodl_console.feed.clock import RealClock
from flodl_console.launch import LaunchFailedError, LaunchSlowError, start_headless
from flodl_console.view.records import DocumentArrived, LinkChanged, LinkState
from flodl_core.errors import ConfigError
from flodl_core.telemetry.run_directory import NoLiveRunError, find_run

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(150),
]

JOB = ("headless", "synthetic", "--ranks", "2", "--port", "0", "--job-arg", "step_ms=20")

ORPHANED = """
import os, signal, sys
from pathlib import Path
import anyio
from flodl_console.launch import start_headless
anyio.run(start_headless, sys.argv[2:], Path(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def anyio_backend():
    """The console runs on this one."""
    return "asyncio"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("FLODL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def words(runs, *more):
    return (*JOB, "--run-dir", str(runs), *more)


def is_training(document):
    return document.training is not None and document.training.samples_done > 0


async def ended(feed):
    """Stop a run over its port and read on until it is gone."""
    async with reading(feed) as records:
        with anyio.fail_after(45):
            async for record in records:
                if isinstance(record, DocumentArrived) and is_training(record.document):
                    break
        assert (await feed.ask("stop")).is_accepted
        return await until(records, LinkChanged, limit_s=40, state=LinkState.ENDED)


async def test_a_run_is_started_attached_to_and_stopped(runs):
    launched = await start_headless(words(runs, "--epochs", "1000"), runs)
    assert launched.directory.is_live()
    assert launched.output_path == launched.directory.path / "logs" / "headless.out"
    seen = await ended(launched_feed(launched))
    assert seen[-1].detail == "the run has ended: exit 4, stopped"
    assert launched.process.wait(30) == 4
    assert seen[-2].document.end.exit_code == 4
    assert "stopped" in launched.output_path.read_text()
    assert not list(runs.glob(".launch-*"))
    assert os.getsid(0) != launched.pid


async def test_it_outlives_a_console_that_is_killed(runs):
    console = await anyio.run_process(
        [sys.executable, "-c", ORPHANED, str(runs), *words(runs, "--epochs", "1000")],
        check=False,
    )
    assert console.returncode == -signal.SIGKILL
    found = find_run(runs)
    launcher = int((found.path / "live").read_text())
    os.kill(launcher, signal.SIGHUP)
    seen = await ended(find_live_feed(None, run_dir=runs))
    assert seen[-1].detail == "the run has ended: exit 4, stopped"


@pytest.mark.parametrize(
    ("more", "happened", "fix", "code"),
    [
        (("--epochs", "0"), "run.epochs = '0'", "--epochs 10", 2),
        (("--job-arg", "nosuch=1"), "nosuch", "", 2),
    ],
)
async def test_a_child_that_ends_tells_why_in_its_own_words(runs, more, happened, fix, code):
    with pytest.raises(LaunchFailedError) as told:
        await start_headless(words(runs, *more), runs)
    assert happened in told.value.happened
    assert fix in told.value.fix
    assert told.value.child_code == code
    assert not list(runs.glob(".launch-*"))


async def test_a_child_that_is_slow_is_left_alone_and_named(runs):
    with pytest.raises(LaunchSlowError, match="has not opened its port") as told:
        await start_headless(words(runs), runs, wait_s=0.0, clock=FakeClock())
    os.kill(told.value.pid, signal.SIGTERM)
    with anyio.fail_after(30):
        while is_running(told.value.pid):
            await RealClock().wait(anyio.Event(), 0.05)


async def test_a_directory_that_cannot_be_written_is_named_before_anything_starts(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        await start_headless(JOB, tmp_path / "file" / "runs")


async def test_without_a_live_run_there_is_nothing_to_attach_to(runs):
    with pytest.raises(NoLiveRunError):
        find_live_feed(None, run_dir=runs)


async def test_an_address_needs_no_run_directory(runs):
    feed = find_live_feed("localhost:1", run_dir=runs, is_read_only=True)
    outcome = await feed.ask("stop")
    await feed.aclose()
    assert "read-only" in outcome.text


async def test_a_token_file_gives_the_right_to_operate(runs, tmp_path):
    launched = await start_headless(words(runs, "--require-token", "--epochs", "1000"), runs)
    token = launched.directory.read_token()
    assert token is not None
    kept = tmp_path / "token"
    kept.write_text(token)
    address = launched.directory.read_address()
    assert address is not None
    nowhere = tmp_path / "elsewhere"
    async with reading(find_live_feed(address, run_dir=nowhere)) as records:
        seen = await until(records, LinkChanged, state=LinkState.DISCONNECTED)
    assert "only to its operator" in seen[-1].detail
    last = await ended(find_live_feed(address, run_dir=nowhere, token_file=kept))
    assert last[-1].detail == "the run has ended: exit 4, stopped"
    assert launched.process.wait(30) == 4
    assert not launched.directory.is_live()


def is_running(pid):
    """Whether a process is there and not just waiting to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
