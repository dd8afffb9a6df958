"""A replay: the record of a run in its run directory, played like the run itself.

What it is: a playback over what `telemetry.replay` reads.
What it is not: the record's format.
Who drives it: `flodl console --replay DIR`.
"""

from collections.abc import Callable
from pathlib import Path

from flodl_console.feed.clock import FeedClock, RealClock
from flodl_console.feed.played import PlayedFeed
from flodl_console.feed.player import Player
from flodl_console.feed.recording import Recording
from flodl_console.feed.source import ActionOutcome
from flodl_console.view.records import SourceKind
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.units import Seconds


def _open_run(run_dir: Path) -> Recording:
    from flodl_core.telemetry.replay import RecordedRun

    return RecordedRun.open(run_dir)


def check_record(run_dir: Path) -> None:
    """Look whether a directory holds a record at all; what is in it is read later.

    Raises:
        NoRecordError: it holds none.
    """
    from flodl_core.telemetry.replay import RECORDS, NoRecordError

    trees = (run_dir / RECORDS, run_dir)
    if any(next(tree.glob("*.jsonl*"), None) for tree in trees if tree.is_dir()):
        return
    what = "holds no record of a run" if run_dir.is_dir() else "is no directory"
    raise NoRecordError(
        f"{show_untrusted(str(run_dir))} {what}",
        fix="give the directory of a run, such as runs/night-0123456789abcdef",
    )


class ReplayFeed(PlayedFeed):
    """Plays a record."""

    def __init__(
        self,
        run_dir: Path,
        *,
        is_paused: bool = False,
        clock: FeedClock | None = None,
        open_run: Callable[[Path], Recording] = _open_run,
    ) -> None:
        """Make a feed; a directory without a record is told by a record of the feed.

        Args:
            run_dir: of the run, as `flodl headless` left it.
            is_paused: whether to begin standing.
            clock: time to wait by; the machine's if None.
            open_run: opens the record.
        """
        player = Player(
            lambda: open_run(run_dir),
            begin_s=_first_document_s,
            is_paused=is_paused,
            clock=clock or RealClock(),
            reads_files=True,
        )
        super().__init__(player, kind=SourceKind.REPLAY, label=str(run_dir), is_read_only=True)

    async def ask(self, action: str, **parameters: str) -> ActionOutcome:
        """Refuse: what is recorded is over."""
        return ActionOutcome(
            is_accepted=False,
            text=f"this is a replay: nobody is there to {action}",
            fix="attach to a live run with flodl console --attach HOST:PORT",
        )


def _first_document_s(recording: Recording) -> Seconds:
    times = recording.times()
    return times[0] if times else 0.0
