"""The live view of `flodl headless` on a terminal, drawn with rich.

What it is: a panel that is redrawn in place with each status document, under
lines that tell what changed. 80 columns suffice; no meaning is in a colour alone.
What it is not: the console, which is a program of its own.
Who drives it: the command line only, which imports this module when it has a
terminal to draw on; nothing else imports it, so that no role loads rich.
"""

from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flodl_core.ids import ClusterPhase
from flodl_core.telemetry.changes import AlertRaised, ChangeReader, RankChanged
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.telemetry.progress import (
    describe,
    describe_cadence,
    describe_training,
    describe_window,
)
from flodl_core.telemetry.quantities import (
    show_age,
    show_bytes,
    show_count,
    show_duration,
    show_number,
    show_percent,
)
from flodl_core.telemetry.state import StateDocument, TrainingState
from flodl_core.telemetry.summary import RunSummary, render_summary

MAX_RANK_ROWS = 16
BAR_CHARS = 60


class LiveProgress:
    """Draws a run on a terminal; use it as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._reader = ChangeReader()
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def update(self, document: StateDocument) -> None:
        """Tell what changed above the panel, and redraw the panel."""
        for change in self._reader.read(document):
            loud = isinstance(change, (AlertRaised, RankChanged))
            line = Text(describe(change), style="bold red" if loud else "")
            self._console.print(line, soft_wrap=True)
        self._live.update(draw(document), refresh=True)

    def finish(self, summary: RunSummary) -> None:
        """Take the panel away and print the summary."""
        self._live.stop()
        self._console.print(Text(render_summary(summary)), soft_wrap=True)


def draw(document: StateDocument) -> RenderableType:
    """Return the panel of a document."""
    parts: list[RenderableType] = [Text(_title(document), style="bold", no_wrap=True)]
    if document.phase in (ClusterPhase.WAITING, ClusterPhase.STAGING):
        parts.append(Text(describe_window(document)))
    if document.training is not None:
        parts.append(Text(_bar(document.training)))
        parts += [
            Text(line, no_wrap=True, overflow="ellipsis")
            for line in (describe_training(document), *describe_cadence(document))
        ]
    if document.reduce is not None:
        parts.append(Text(_reduce(document), no_wrap=True, overflow="ellipsis"))
    if document.ranks:
        parts.append(_ranks(document))
    parts += [
        Text(
            f"waiting: {'rank ' + str(wait.rank) if wait.rank is not None else 'run'} "
            f"{show_untrusted(wait.phase)} {show_age(wait.age_s, wait.ceiling_s)}, "
            f"then {show_untrusted(wait.outcome)}",
            style="yellow",
        )
        for wait in document.waits[:5]
    ]
    return Group(*parts)


def _bar(training: TrainingState) -> str:
    done = min(1.0, training.samples_done / max(training.samples_total, 1))
    full = int(done * BAR_CHARS)
    return f"{'━' * full}{'╌' * (BAR_CHARS - full)} {show_percent(done)}"


def _title(document: StateDocument) -> str:
    run = document.run
    name = show_untrusted(run.name, limit_chars=32)
    port = f"  port {run.port}" if run.port is not None else ""
    return f"{name} {run.id}  {document.phase.value}  {run.mode}{port}  {_uptime(document)}"


def _uptime(document: StateDocument) -> str:
    return show_duration(document.run.uptime_s)


def _reduce(document: StateDocument) -> str:
    reduce = document.reduce
    if reduce is None:
        return ""
    if reduce.pending_s is not None:
        now = f"pending {show_age(reduce.pending_s, reduce.stall_ceiling_s)}"
    else:
        now = f"last {show_number(reduce.last_sync_ms, digits=3)} ms {reduce.last_outcome or ''}"
    return (
        f"{'reduce':<8} {reduce.state}  cycle {reduce.cycle}  version {reduce.version}  "
        f"{show_bytes(reduce.bytes)}  {now}"
    )


def _ranks(document: StateDocument) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name in ("rank", "host", "device", "state", "batches", "ms", "share", "loss", "heard"):
        table.add_column(name, justify="left" if name in ("host", "device", "state") else "right")
    for rank in document.ranks[:MAX_RANK_ROWS]:
        table.add_row(
            str(rank.rank),
            Text(show_untrusted(rank.host, limit_chars=16)),
            Text(show_untrusted(rank.device, limit_chars=8)),
            Text(rank.state.value, style="red" if rank.state.value == "lost" else ""),
            show_count(rank.batch_count),
            show_number(rank.ms_per_batch, digits=3),
            show_percent(rank.share),
            show_number(rank.loss),
            show_duration(rank.heartbeat_age_s),
        )
    if len(document.ranks) > MAX_RANK_ROWS:
        table.add_row("…", f"{len(document.ranks) - MAX_RANK_ROWS} more", *[""] * 7)
    return table
