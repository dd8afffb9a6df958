"""Watching a run until it ends, over a short outage of its port.

What it is: a poller on a clock and pauses that are passed in.
What it is not: a judge of the run; it returns the run's own exit code.
Who drives it: `status --watch`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from flodl_core.cli.attach import Attachment, NothingPublishedError
from flodl_core.cli.display import Display
from flodl_core.errors import FlodlError
from flodl_core.net.http_client import ControllerUnreachableError
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.telemetry.state import StateDocument
from flodl_core.telemetry.summary import RunSummary, summarize

POLL_S: Final = 0.5
OUTAGE_S: Final = 30.0
"""How long a run that does not answer is asked again."""
SUMMARY_S: Final = 10.0
"""How long a run that has ended may take to write its summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A run as a watcher sees it."""

    label: str
    ask: Callable[[], StateDocument]
    """Raises ControllerUnreachableError while nobody answers."""
    is_live: Callable[[], bool]
    """Whether its launcher may still be there."""
    read_summary: Callable[[], RunSummary | None] | None
    """What the run wrote at its end; None where its files are not here."""


def watch(
    run: Observed,
    display: Display,
    *,
    pause: Callable[[float], object],
    now: Callable[[], float],
) -> int:
    """Show a run until it ends; return its exit code, 1 where that cannot be known.

    Raises:
        ControllerUnreachableError: it has not answered for OUTAGE_S.
        RunGoneError: it has ended, and how is not known.
        FlodlError: what it answered cannot be used.
    """
    last: StateDocument | None = None
    silent_since_s: float | None = None
    while last is None or last.end is None:
        try:
            last = run.ask()
        except (ControllerUnreachableError, NothingPublishedError):
            if not run.is_live():
                break
            if silent_since_s is None:
                silent_since_s = now()
                display.say(f"{run.label} does not answer; asking again for {OUTAGE_S:g} s")
            elif now() - silent_since_s >= OUTAGE_S:
                raise
        else:
            silent_since_s = None
            display.show(last)
        if last is None or last.end is None:
            pause(POLL_S)
    return _finish(run, display, last, pause=pause, now=now)


def _finish(
    run: Observed,
    display: Display,
    last: StateDocument | None,
    *,
    pause: Callable[[float], object],
    now: Callable[[], float],
) -> int:
    """Show the summary of a run that has ended: its own file, else from its last document."""
    summary = None
    if run.read_summary is not None:
        give_up_s = now() + SUMMARY_S
        summary = run.read_summary()
        while summary is None and now() < give_up_s:
            is_over = not run.is_live()
            summary = run.read_summary()
            if is_over or summary is not None:
                break
            pause(POLL_S)
    if summary is None and last is not None and last.end is not None:
        end = last.end
        summary = summarize(last, exit_code=end.exit_code, reason=end.reason, detail=end.detail)
    if summary is None:
        raise RunGoneError(
            f"run {run.label} has ended without a summary",
            fix="read the launcher's log in its run directory",
        )
    display.finish(summary)
    return summary.exit_code


class RunGoneError(FlodlError):
    """A run that was watched is gone, and how it ended is not known."""


def observed(found: Attachment) -> Observed:
    """Return an attached run as something to watch."""
    directory = found.directory
    if directory is None:
        return Observed(
            label=found.label,
            ask=found.document,
            is_live=lambda: True,
            read_summary=None,
        )
    return Observed(
        label=found.label,
        ask=found.document,
        is_live=directory.is_live,
        read_summary=lambda: read_summary(directory),
    )


def read_summary(directory: RunDirectory) -> RunSummary | None:
    """Return the summary that a run wrote at its end, or None."""
    try:
        return RunSummary.model_validate_json(directory.summary_path.read_bytes())
    except (OSError, ValidationError):
        return None
