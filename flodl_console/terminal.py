"""The terminal before and after the console: reset at the start, given back on every exit.

What it is: escape sequences that undo what a program before us may have left, a copy of
the line settings, and signals that end the console in order.
What it is not: the drawing; Textual does that, and cleans up after itself where it can.
Who drives it: `running.run_console`.

A signal asks the application to leave. Where it does not within GRACE_S, because a
widget loops or the terminal is gone and takes no more bytes, the alarm handler gives the
terminal back itself and ends the process: nothing of the run is in it.
"""

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

GRACE_S: Final = 1.0
"""How long leaving in order may take."""

RESET: Final = (
    "\x1b[!p"  # soft reset: margins, insert mode, origin mode, character sets, rendition
    "\x1b(B\x0f"  # ASCII in G0
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # no mouse
    "\x1b[?1004l\x1b[?2004l\x1b[?2048l"  # no focus, paste or resize reports
    "\x1b[?1l\x1b>"  # cursor keys and keypad as usual
    "\x1b[?7h\x1b[?25h\x1b[0m"  # wrap, cursor, no colours
)
"""Sets modes only: nothing is erased and the cursor stays where it is."""

LEAVE: Final = "\x1b[<u\x1b[?1049l" + RESET
"""Gives back the keyboard protocol and the screen of before; only where Textual did not,
as it moves the cursor to where that screen's was."""

ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def exit_code_of(signum: int) -> int:
    """Return what a process exits with that a signal ended."""
    return 128 + signum


@contextlib.contextmanager
def given_back(leave: Callable[[int], None]) -> Iterator[Callable[[], None]]:
    """Reset the terminal, and give it back as it was whatever happens.

    Yields a function that starts the alarm: the process ends GRACE_S later at the latest.

    Args:
        leave: asks the application to leave with an exit code; called in a signal handler
            of the main thread.
    """
    terminal = _Terminal()
    terminal.write(RESET)

    def by_signal(signum: int, frame: FrameType | None) -> None:
        del frame
        terminal.exit_code = exit_code_of(signum)
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)
        leave(terminal.exit_code)

    def by_alarm(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        terminal.give_back(LEAVE)
        os._exit(terminal.exit_code)

    def start_alarm() -> None:
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)

    before = {signum: signal.signal(signum, by_signal) for signum in ENDING_SIGNALS}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, by_alarm)
    sequence = LEAVE
    try:
        yield start_alarm
        sequence = RESET
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for signum, handler in before.items():
            signal.signal(signum, handler)
        terminal.give_back(sequence)


class _Terminal:
    """The controlling terminal's two ends, as they were at the start.

    Attributes:
        exit_code: what the alarm ends the process with.
    """

    def __init__(self) -> None:
        self.exit_code = 0
        self._output = sys.__stderr__.fileno() if sys.__stderr__ is not None else -1
        self._input = sys.__stdin__.fileno() if sys.__stdin__ is not None else -1
        self._settings = None
        with contextlib.suppress(termios.error, OSError):
            self._settings = termios.tcgetattr(self._input)

    def write(self, sequence: str) -> None:
        """Write past every buffer; a terminal that is full or gone is left alone."""
        if self._output < 0 or not os.isatty(self._output):
            return
        was_blocking = True
        with contextlib.suppress(OSError):
            was_blocking = os.get_blocking(self._output)
            os.set_blocking(self._output, False)
        with contextlib.suppress(OSError):
            os.write(self._output, sequence.encode("ascii"))
        with contextlib.suppress(OSError):
            os.set_blocking(self._output, was_blocking)

    def give_back(self, sequence: str) -> None:
        """Restore modes and line settings, and whatever else a sequence restores."""
        self.write(sequence)
        if self._settings is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(self._input, termios.TCSANOW, self._settings)
