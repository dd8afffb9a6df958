"""Starts a run that outlives the console: a detached `flodl headless`.

What it is: one child in a session of its own, with no terminal, its words in a file; and
the wait until its port is open.
What it is not: the run's parent in any other sense: whatever becomes of the console, the
child goes on.
Who drives it: the launch form.

    spawn ──▶ its run directory appears ──▶ port written: attached
       └──▶ it ends before: its own words
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import anyio

from flodl_console.feed.clock import FeedClock, RealClock
from flodl_core.errors import ConfigError, FlodlError
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.telemetry.run_directory import RunDirectory, list_runs
from flodl_core.units import KIB, Seconds

PORT_WAIT_S: Final = 30.0
LOOK_EVERY_S: Final = 0.1
OUTPUT_NAME: Final = "headless"
MAX_READ_BYTES: Final = 64 * KIB
MAX_TOLD_LINES: Final = 12
MAX_TOLD_CHARS: Final = 400

_CHILDREN: Final[list["subprocess.Popen[bytes]"]] = []
"""Started here and not yet seen to have ended; looked at before each start, which reaps them."""

_ERROR: Final = "error: "
_FIX: Final = "Fix: "


class LaunchFailedError(FlodlError):
    """The child ended before its port was open.

    Attributes:
        child_code: its exit code, or minus the signal's number.
    """

    def __init__(self, happened: str, *, child_code: int, fix: str = "") -> None:
        self.child_code = child_code
        super().__init__(happened, fix=fix)


class LaunchSlowError(FlodlError):
    """The child is alive, but its port is not open yet.

    Attributes:
        pid: of the child.
    """

    def __init__(self, happened: str, *, pid: int, fix: str) -> None:
        self.pid = pid
        super().__init__(happened, fix=fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRun:
    """A run that this console started."""

    directory: RunDirectory
    output_path: Path
    """Where the child's words go on."""
    pid: int
    process: "subprocess.Popen[bytes]" = field(repr=False)
    """The child; nobody stops it by this."""


async def start_headless(
    words: Sequence[str],
    run_dir: Path,
    *,
    wait_s: Seconds = PORT_WAIT_S,
    clock: FeedClock | None = None,
) -> LaunchedRun:
    """Start a run and return when it can be attached to.

    The child is left alone when this is cancelled.

    Args:
        words: after `flodl`, from `headless` on.
        run_dir: of all runs; the child must use the same.
        wait_s: how long its port may take to open.
        clock: time to wait by; the machine's if None.

    Raises:
        LaunchFailedError: the child ended; the text holds its own words.
        LaunchSlowError: its port is not open in time; it goes on.
        ConfigError: the directory cannot be written.
    """
    clock = clock or RealClock()
    output, path = _open_output(run_dir)
    with output:
        process = _spawn(words, output)
    until_s = clock.now() + wait_s
    while True:
        directory = _directory_of(run_dir, process.pid)
        if directory is not None and directory.read_port() is not None:
            return LaunchedRun(
                directory=directory,
                output_path=_moved(path, directory),
                pid=process.pid,
                process=process,
            )
        code = process.poll()
        if code is not None:
            raise _failure(path, code)
        if clock.now() >= until_s:
            raise LaunchSlowError(
                f"process {process.pid} has not opened its port after {wait_s:g} s: "
                f"{_last_line(path)}",
                pid=process.pid,
                fix=f"it goes on; attach to it later, or look into {path}",
            )
        await clock.wait(anyio.Event(), LOOK_EVERY_S)


def _open_output(run_dir: Path) -> tuple[IO[bytes], Path]:
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".launch-", suffix=".out", dir=run_dir)
    except OSError as error:
        raise ConfigError(
            "run_dir",
            str(run_dir),
            f"cannot be written ({error.strerror})",
            source="resolved",
            fix="give a directory that this user may write, with --run-dir",
        ) from error
    return open(descriptor, "wb"), Path(name)  # noqa: PTH123 - an open descriptor, no path


def _spawn(words: Sequence[str], output: IO[bytes]) -> "subprocess.Popen[bytes]":
    _CHILDREN[:] = [child for child in _CHILDREN if child.poll() is None]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "flodl_core.cli.main", *words],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    _CHILDREN.append(process)
    return process


def _directory_of(run_dir: Path, pid: int) -> RunDirectory | None:
    """Return the run directory whose lock a process holds."""
    for run in list_runs(run_dir):
        with suppress(OSError):
            if (run.path / "live").read_text().strip() == str(pid) and run.is_live():
                return run
    return None


def _moved(path: Path, directory: RunDirectory) -> Path:
    """Move the file of the child's words into its run directory; the child writes on."""
    target = directory.output_path(OUTPUT_NAME)
    try:
        return path.replace(target)
    except OSError:
        return path


def _failure(path: Path, code: int) -> LaunchFailedError:
    """Return what a child that ended said: its error, else its last lines."""
    lines = _lines(path)
    path.unlink(missing_ok=True)
    starts = [index for index, line in enumerate(lines) if line.startswith(_ERROR)]
    told = lines[starts[-1] :] if starts else lines[-MAX_TOLD_LINES:]
    fixes = [line.strip() for line in told if line.strip().startswith(_FIX)]
    said = [line.removeprefix(_ERROR) for line in told if not line.strip().startswith(_FIX)]
    happened = "\n".join(said[:MAX_TOLD_LINES]) or f"it ended with exit code {code} and no word"
    fix = fixes[0].removeprefix(_FIX) if fixes else ""
    return LaunchFailedError(happened, child_code=code, fix=fix)


def _last_line(path: Path) -> str:
    lines = _lines(path)
    return lines[-1] if lines else "it has said nothing"


def _lines(path: Path) -> list[str]:
    """Return the last lines of a file, harmless to a terminal and bounded."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - MAX_READ_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [
        show_untrusted(line, limit_chars=MAX_TOLD_CHARS)
        for line in text.splitlines()
        if line.strip()
    ]
