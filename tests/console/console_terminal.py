"""A real console in a pseudo-terminal, and what a terminal remembers of what it was sent."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SCRIPT = """
import os
import sys
from flodl_console.running import run_console
from flodl_console.settings import ConsoleSettings
from flodl_console.screens.window import WindowScreen

def fail(self, lines):
    raise RuntimeError("a widget failed")

def hang(self, lines):
    os.write(2, b"HANGS")
    while True:
        pass

TROUBLE = {"fail": fail, "hang": hang}
if sys.argv[1] in TROUBLE:
    WindowScreen.action_scroll_lines = TROUBLE[sys.argv[1]]
sys.exit(run_console(ConsoleSettings(demo="waiting")))
"""

_MODE = re.compile(rb"\x1b\[\?(\d+)([hl])")
SCREEN_MODE = 1049
CURSOR_MODE = 25
WRAP_MODE = 7
MAY_STAY_ON = {CURSOR_MODE, WRAP_MODE}


@dataclass
class Terminal:
    """One end of a pseudo-terminal, with a console at the other."""

    process: "subprocess.Popen[bytes]"
    master: int
    slave: int
    settings_before: list[object]
    seen: bytes = b""
    held: list[int] = field(default_factory=list)

    def read_until(self, words: bytes, *, limit_s: float = 30.0) -> None:
        """Read until some words were drawn."""
        ends_at = time.monotonic() + limit_s
        while words not in self.seen:
            assert time.monotonic() < ends_at, f"{words!r} was not drawn: {self.seen[-400:]!r}"
            self._read(0.1)

    def forget(self) -> None:
        """Look from now on only at what is drawn anew."""
        while self._read(0.2):
            pass
        self.seen = b""

    def send(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def wait(self, *, limit_s: float = 30.0) -> tuple[int, float]:
        """Read until the console has ended; return its exit code and the seconds it took."""
        started_at = time.monotonic()
        while self.process.poll() is None:
            assert time.monotonic() - started_at < limit_s, "the console does not end"
            self._read(0.05)
        took_s = time.monotonic() - started_at
        while self._read(0.05):
            pass
        return self.process.returncode, took_s

    def _read(self, limit_s: float) -> bool:
        ready, _, _ = select.select([self.master], [], [], limit_s)
        if not ready:
            return False
        with contextlib.suppress(OSError):
            self.seen += os.read(self.master, 65_536)
        return True

    @property
    def modes_on(self) -> set[int]:
        """The private modes that are on after all that was sent."""
        state: dict[int, bool] = {}
        for number, switch in _MODE.findall(self.seen):
            state[int(number)] = switch == b"h"
        return {number for number, is_on in state.items() if is_on}

    @property
    def settings_now(self) -> list[object]:
        return termios.tcgetattr(self.slave)

    def assert_clean(self) -> None:
        """The usual screen, the cursor seen, lines wrapped, keys as usual, nothing reported."""
        assert self.modes_on == MAY_STAY_ON
        assert self.settings_now == self.settings_before
        pushed = len(re.findall(rb"\x1b\[>\d+u", self.seen))
        assert self.seen.count(b"\x1b[<u") >= pushed


def terminal(
    trouble: str = "none", *, environ: dict[str, str] | None = None
) -> contextlib.AbstractContextManager[Terminal]:
    """A demo in a terminal, with a way to fail or hang at the key `j`."""
    return terminal_with([sys.executable, "-c", SCRIPT, trouble], environ=environ)


@contextlib.contextmanager
def terminal_with(
    command: Sequence[str], *, environ: dict[str, str] | None = None, directory: Path | None = None
) -> Iterator[Terminal]:
    """A command in a terminal of 80x24."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(slave)
    process = subprocess.Popen(
        list(command),
        cwd=directory,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", **(environ or {})},
    )
    try:
        yield Terminal(process, master, slave, before)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(timeout=10)
        for descriptor in (master, slave):
            with contextlib.suppress(OSError):
                os.close(descriptor)
