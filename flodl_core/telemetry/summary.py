"""The summary of a run: what it came to, as a table and as JSON.

What it is: a frozen model made from the last status document, and its text.
What it is not: a source of facts of its own.
Who drives it: the launcher writes summary.json, `headless` prints the text as
its last lines, the cause of a failure being the very last.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from flodl_core.ids import ExitCode
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.telemetry.quantities import (
    plural,
    show_count,
    show_duration,
    show_number,
    show_percent,
    show_rate,
)
from flodl_core.telemetry.state import EpochState, Section, StateDocument

SUMMARY_VERSION: Final = 1

_ENDINGS: Final = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "not started",
    ExitCode.WINDOW_FAILED: "no world formed",
    ExitCode.STOPPED_SAVED: "stopped early and saved",
    ExitCode.NOT_SAVED: "trained but not saved",
    ExitCode.INTERRUPTED_SAVED: "interrupted and saved",
}


class RankSummary(Section):
    """What one rank did."""

    rank: int
    host: str
    device: str
    state: str
    batches: int
    samples: int
    share: float | None = None
    """Its part of all trained samples."""
    weight: float | None = None
    """Its part of the mass of the last committed round."""
    ms_per_batch: float | None = None


class RunSummary(Section):
    """What the run came to."""

    schema_version: int = SUMMARY_VERSION
    run_id: str
    name: str
    mode: str
    exit_code: int
    reason: str
    detail: str = ""
    duration_s: float
    world_size: int | None = None
    hosts: int
    epochs: tuple[EpochState, ...] = ()
    global_step: int = 0
    syncs: int = 0
    """Cycles that were committed, the initial broadcast not counted."""
    samples_trained: int = 0
    samples_dropped: int = 0
    samples_tail: int = 0
    """Samples that made no whole batch and were left out, over all passes."""
    throughput: float | None = None
    loss: float | None = None
    metric: float | None = None
    metric_name: str | None = None
    report: str | None = None
    ranks: tuple[RankSummary, ...] = ()
    alerts: dict[str, int] = Field(default_factory=dict)
    checkpoint: str | None = None
    save_reason: str | None = None
    """Why that checkpoint was written."""
    resumed_from: str | None = None
    sample_log: str | None = None
    run_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbounded:
    """What the launcher knows beyond its last status document, whose lists are bounded.

    Attributes:
        epochs: all that are complete, oldest first; None leaves those of the document.
        alerts: how many of each class; None counts those of the document.
        samples_tail: samples left out because they made no whole batch.
        sample_log: where the sample log lies, if one was written.
    """

    epochs: Sequence[EpochState] | None = None
    alerts: Mapping[str, int] | None = None
    samples_tail: int = 0
    sample_log: str | None = None


def summarize(
    document: StateDocument,
    *,
    exit_code: int,
    reason: str,
    detail: str = "",
    beyond: Unbounded = Unbounded(),
) -> RunSummary:
    """Return the summary of a run from its last status document.

    Args:
        document: as it stood at the end.
        exit_code: that the command ends with.
        reason: one clause; of a failure, its root cause.
        detail: whatever else should be known about it.
        beyond: what the launcher knows besides.
    """
    training = document.training
    counts = Counter(beyond.alerts)
    if beyond.alerts is None:
        for alert in document.alerts:
            counts[alert.alert_class] += alert.count
    return RunSummary(
        run_id=document.run.id,
        name=document.run.name,
        mode=document.run.mode,
        exit_code=exit_code,
        reason=reason,
        detail=detail,
        duration_s=document.run.uptime_s,
        world_size=document.run.world_size,
        hosts=len({rank.host for rank in document.ranks}) or document.joined_hosts,
        epochs=document.epochs if beyond.epochs is None else tuple(beyond.epochs),
        global_step=training.global_step if training else 0,
        syncs=training.syncs if training else 0,
        samples_trained=training.samples_done if training else 0,
        samples_dropped=training.samples_dropped if training else 0,
        samples_tail=beyond.samples_tail,
        throughput=training.throughput if training else None,
        loss=training.loss if training else None,
        metric=training.metric if training else None,
        metric_name=training.metric_name if training else None,
        report=document.report,
        ranks=tuple(
            RankSummary(
                rank=rank.rank,
                host=rank.host,
                device=rank.device,
                state=rank.state.value,
                batches=rank.batch_count,
                samples=rank.samples,
                share=rank.share,
                weight=rank.weight,
                ms_per_batch=rank.ms_per_batch,
            )
            for rank in document.ranks
        ),
        alerts=dict(sorted(counts.items())),
        checkpoint=document.checkpoint.path if document.checkpoint else None,
        save_reason=document.checkpoint.reason if document.checkpoint else None,
        resumed_from=document.run.resumed_from,
        sample_log=beyond.sample_log,
        run_dir=document.run.run_dir,
    )


def summary_json(summary: RunSummary, *, indent: int | None = None) -> str:
    """Return the summary as JSON: summary.json with an indent, one line without."""
    return summary.model_dump_json(indent=indent)


def render_summary(summary: RunSummary) -> str:
    """Return the summary as lines for people, at most 80 columns except for paths and reports."""
    lines: list[str] = []
    if summary.report:
        lines += ["", "The model says:", *_report_lines(summary.report)]
    lines += ["", *_headline(summary)]
    if summary.ranks:
        lines += ["", *_rank_table(summary.ranks)]
    lines += ["", *_paths(summary), *_alerts(summary)]
    lines += _ending(summary)
    return "\n".join(lines).lstrip("\n")


def _report_lines(report: str) -> list[str]:
    return [f"  {show_untrusted(line.expandtabs(4))}" for line in report.splitlines()]


def _headline(summary: RunSummary) -> list[str]:
    metric = show_untrusted(summary.metric_name or "metric", limit_chars=40)
    facts = [
        ("samples", f"{show_count(summary.samples_trained)} trained{_left_out(summary)}"),
        ("loss", show_number(summary.loss)),
        (f"eval ({metric})", show_number(summary.metric)),
        ("syncs", f"{show_count(summary.syncs)} in {plural(_epochs_done(summary), 'epoch')}"),
        ("steps", show_count(summary.global_step)),
        ("throughput", f"{show_rate(summary.throughput)} samples/s"),
        ("time", show_duration(summary.duration_s)),
    ]
    shown = [
        (name, text)
        for name, text in facts
        if not (name.startswith("eval") and summary.metric is None)
    ]
    width = max(len(name) for name, _ in shown)
    return [f"{name:<{width}}  {text}" for name, text in shown]


def _epochs_done(summary: RunSummary) -> int:
    return summary.epochs[-1].epoch + 1 if summary.epochs else 0


def _left_out(summary: RunSummary) -> str:
    parts = []
    if summary.samples_dropped:
        parts.append(f"{show_count(summary.samples_dropped)} dropped")
    if summary.samples_tail:
        parts.append(f"{show_count(summary.samples_tail)} left out as tail")
    return f" ({', '.join(parts)})" if parts else ""


def _rank_table(ranks: tuple[RankSummary, ...]) -> list[str]:
    head = (
        "rank",
        "host",
        "device",
        "batches",
        "samples",
        "share",
        "last weight",
        "ms/batch",
        "state",
    )
    rows = [
        (
            str(rank.rank),
            show_untrusted(rank.host, limit_chars=16),
            show_untrusted(rank.device, limit_chars=12),
            show_count(rank.batches),
            show_count(rank.samples),
            show_percent(rank.share),
            show_percent(rank.weight),
            show_number(rank.ms_per_batch, digits=3),
            rank.state,
        )
        for rank in ranks
    ]
    return align_columns([head, *rows], left=(1, 2, 8))


def align_columns(rows: list[tuple[str, ...]], *, left: tuple[int, ...]) -> list[str]:
    """Return rows as aligned lines; columns in `left` are left-aligned, the others right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _paths(summary: RunSummary) -> list[str]:
    pairs = (
        ("resumed from", summary.resumed_from),
        ("checkpoint", summary.checkpoint),
        ("sample log", summary.sample_log),
        ("run directory", summary.run_dir),
    )
    return [f"{name:<13}  {show_untrusted(path)}" for name, path in pairs if path]


def _alerts(summary: RunSummary) -> list[str]:
    if not summary.alerts:
        return []
    told = ", ".join(f"{show_untrusted(name)} × {count}" for name, count in summary.alerts.items())
    return [f"{'alerts':<13}  {told}"]


def _ending(summary: RunSummary) -> list[str]:
    name = _ENDINGS.get(summary.exit_code, f"ended with {summary.exit_code}")
    if summary.checkpoint is None:
        name = name.replace(" and saved", ", nothing was saved")
    lines = ["", f"{name}: {show_untrusted(summary.reason)}"]
    if summary.detail:
        lines += [f"  {show_untrusted(line)}" for line in summary.detail.splitlines()]
    return lines
