"""What a run looks like while it goes on: a live view, plain lines, or JSON lines.

What it is: the choice between the three, and a wrapper that goes on silently
when the terminal or the reader has left, because a run must not end with it.
What it is not: any text; `telemetry.progress` and `telemetry.live_view` say it.
Who drives it: `headless`, and `status --watch`.
"""

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from flodl_core.cli.lines import write_error_line, write_json, write_line
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.telemetry.progress import JsonProgress, PlainProgress, Progress
from flodl_core.telemetry.state import StateDocument
from flodl_core.telemetry.summary import RunSummary

Write = Callable[[str], object]

LEAST_COLUMNS: Final = 40
LEAST_ROWS: Final = 8
"""A smaller terminal gets plain lines."""

_HANGUP: Final = getattr(signal, "SIGHUP", None)


def _never() -> bool:
    return False


class Display:
    """Shows documents, single lines and the summary; never fails for want of a reader.

    Args:
        progress: renders documents and the summary.
        tell: takes one line for the person who started the command.

    Attributes:
        has_begun: whether a document was shown.
        is_behind: whether the reader has not taken what was shown; documents are left out then.
    """

    def __init__(self, progress: Progress, tell: Write) -> None:
        self._progress = progress
        self._tell = tell
        self.is_behind: Callable[[], bool] = _never
        self._is_gone = False
        self.has_begun = False

    def show(self, document: StateDocument) -> None:
        """Show a newer document."""
        self.has_begun = True
        if self.is_behind():
            return
        self._try(lambda: self._progress.update(document))

    def say(self, line: str) -> None:
        """Show one line."""
        text = show_untrusted(" ".join(line.splitlines()).rstrip())
        self._try(lambda: self._tell(text))

    def finish(self, summary: RunSummary) -> None:
        """Show the summary; nothing is shown after it."""
        self._try(lambda: self._progress.finish(summary))

    def _try(self, write: Callable[[], object]) -> None:
        if self._is_gone:
            return
        try:
            write()
        except OSError:
            self._is_gone = True


@contextlib.contextmanager
def open_display(*, as_json: bool) -> Iterator[Display]:
    """Yield the display that suits standard output; it is closed before errors are told."""
    if as_json:
        yield json_display(write_json)
        return
    with contextlib.ExitStack() as stack:
        yield _live_display(stack) or plain_display(write_line, write_error_line)


def json_display(write: Write) -> Display:
    """Return a display of one JSON object a line."""
    return Display(
        JsonProgress(write),
        lambda text: write(json.dumps({"event": "note", "text": text}, ensure_ascii=False)),
    )


def plain_display(write: Write, write_error: Write) -> Display:
    """Return a display of plain lines; single lines go to `write_error`."""
    return Display(PlainProgress(write), write_error)


@contextlib.contextmanager
def detaching_on_hangup() -> Iterator[None]:
    """Let a terminal that hangs up take only the output with it, inside the block."""
    if _HANGUP is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ignore(number: int, frame: FrameType | None) -> None:
        """Do nothing: writing fails from here on, and the display falls silent."""

    before = signal.signal(_HANGUP, ignore)
    if before is signal.SIG_IGN:
        signal.signal(_HANGUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(_HANGUP, before if before is not None else signal.SIG_DFL)


def _live_display(stack: contextlib.ExitStack) -> Display | None:
    """Return the live view, or None where standard output cannot be drawn on."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    from rich.console import Console
    from rich.text import Text

    from flodl_core.telemetry.live_view import LiveProgress

    console = Console()
    if console.is_dumb_terminal or not console.is_terminal or _is_too_small(console.size):
        return None
    live = LiveProgress(console)
    stack.enter_context(_closing_quietly(live))
    return Display(live, lambda text: console.print(Text(text, style="yellow"), soft_wrap=True))


def _is_too_small(size: tuple[int, int]) -> bool:
    """Return whether a terminal of this width and height has no room for the live view."""
    width, height = size
    return width < LEAST_COLUMNS or height < LEAST_ROWS


@contextlib.contextmanager
def _closing_quietly(live: contextlib.AbstractContextManager[object]) -> Iterator[None]:
    """Enter a view, and leave it even where its terminal is gone."""
    live.__enter__()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            live.__exit__(None, None, None)
