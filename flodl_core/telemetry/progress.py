"""Progress of a run as plain lines, or as JSON with one object a line.

What it is: two renderers with one face, `update(document)` and `finish(summary)`.
What it is not: the live view of a terminal (`live_view`), nor a log.
Who drives it: `flodl headless` with each document it publishes or fetches.
Time is the document's own uptime, so that a replay prints what the run printed.
"""

import json
from collections.abc import Callable
from typing import Final, Protocol

from flodl_core.ids import ClusterPhase, StartMode
from flodl_core.telemetry import changes as told
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.telemetry.quantities import (
    plural,
    show_age,
    show_count,
    show_duration,
    show_number,
    show_percent,
    show_rate,
)
from flodl_core.telemetry.state import EpochState, MemberState, StateDocument
from flodl_core.telemetry.summary import RunSummary, render_summary, summary_json

PLAIN_INTERVAL_S: Final = 5.0
WINDOW_INTERVAL_S: Final = 10.0
RANKS_INTERVAL_S: Final = 30.0
JSON_INTERVAL_S: Final = 1.0


class Progress(Protocol):
    """Shows a run while it goes on, and what it came to."""

    def update(self, document: StateDocument) -> None:
        """Show a newer document."""

    def finish(self, summary: RunSummary) -> None:
        """Show the summary; nothing is shown after it."""


class PlainProgress:
    """Lines of text: what changes at once, the progress every few seconds."""

    def __init__(
        self, write: Callable[[str], object], *, interval_s: float = PLAIN_INTERVAL_S
    ) -> None:
        """Make a renderer.

        Args:
            write: takes one line without its end, such as `print`.
            interval_s: seconds of the run between two progress lines.
        """
        self._write = write
        self._interval_s = interval_s
        self._reader = told.ChangeReader()
        self._told_at_s: dict[str, float] = {}

    def update(self, document: StateDocument) -> None:
        """Write what changed, and the progress if it is due."""
        for change in self._reader.read(document):
            self._write(describe(change))
        if document.phase in (ClusterPhase.WAITING, ClusterPhase.STAGING):
            if self._is_due("window", document, max(self._interval_s, WINDOW_INTERVAL_S)):
                self._write(describe_window(document))
        elif document.training is not None and document.phase is ClusterPhase.TRAINING:
            if self._is_due("training", document, self._interval_s):
                self._write(describe_training(document))
            if self._is_due("ranks", document, RANKS_INTERVAL_S):
                for line in [*describe_ranks(document), *describe_cadence(document)]:
                    self._write(line)

    def _is_due(self, what: str, document: StateDocument, interval_s: float) -> bool:
        at_s = document.run.uptime_s
        last_s = self._told_at_s.get(what)
        if last_s is not None and at_s - last_s < interval_s:
            return False
        self._told_at_s[what] = at_s
        return True

    def finish(self, summary: RunSummary) -> None:
        """Write the summary."""
        for line in render_summary(summary).split("\n"):
            self._write(line)


class JsonProgress:
    """One JSON object a line: changes at once, the whole document every second."""

    def __init__(
        self, write: Callable[[str], object], *, interval_s: float = JSON_INTERVAL_S
    ) -> None:
        self._write = write
        self._interval_s = interval_s
        self._reader = told.ChangeReader()
        self._told_at_s: float | None = None

    def update(self, document: StateDocument) -> None:
        """Write what changed, and the document if it is due or the phase changed."""
        at = document.run.uptime_s
        due = self._told_at_s is None or at - self._told_at_s >= self._interval_s
        for change in self._reader.read(document):
            due = due or isinstance(change, told.PhaseChanged)
            row = {"event": event_name(change), "at_s": at, "text": describe(change)}
            self._write(json.dumps(row, ensure_ascii=False))
        if due:
            self._told_at_s = at
            self._write(f'{{"event":"state","at_s":{at},"state":{document.model_dump_json()}}}')

    def finish(self, summary: RunSummary) -> None:
        """Write the summary as the last object."""
        self._write(f'{{"event":"summary","summary":{summary_json(summary)}}}')


NO_CADENCE: Final = "inapplicable"
"""The phase of a cadence where everybody does one batch between two averages."""

MAX_SHOWN_COUNTS: Final = 16

_EVENT_NAMES: Final = {
    told.RunShown: "run",
    told.PhaseChanged: "phase",
    told.MemberJoined: "joined",
    told.MemberGone: "left",
    told.JoinRefused: "refused",
    told.EpochEnded: "epoch",
    told.EpochEvaluated: "eval",
    told.RankChanged: "rank",
    told.AlertRaised: "alert",
    told.WaitShown: "wait",
    told.BundleSaved: "saved",
}


def event_name(change: told.Change) -> str:
    """Return the word that a change is told under."""
    return _EVENT_NAMES[type(change)]


def describe(change: told.Change) -> str:
    """Return one line that tells a change."""
    return f"{event_name(change):<8} {_tell(change)}"


def _tell(change: told.Change) -> str:
    match change:
        case told.RunShown(document):
            return _tell_run(document)
        case told.PhaseChanged(phase, document):
            return _tell_phase(phase, document)
        case told.MemberJoined(member) | told.MemberGone(member):
            return _tell_member(member)
        case told.JoinRefused(count, last):
            return f"{plural(count, 'join')} refused; last: {show_untrusted(last or '?')}"
        case told.EpochEnded(epoch, epochs):
            return _tell_epoch(epoch, epochs)
        case told.EpochEvaluated(epoch, epochs):
            return f"{epoch.epoch + 1}/{epochs} {_tell_metric(epoch)}"
        case told.RankChanged(rank):
            return f"rank {rank.rank} on {show_untrusted(rank.host)} is {rank.state.value}"
        case told.BundleSaved(path, version):
            return f"{show_untrusted(path)} (version {version})"
        case _:
            return _tell_trouble(change)


def _tell_trouble(change: told.AlertRaised | told.WaitShown) -> str:
    if isinstance(change, told.AlertRaised):
        alert = change.alert
        times = f" × {alert.count}" if alert.count > 1 else ""
        where = show_untrusted(alert.path)
        return (
            f"{alert.severity} {alert.alert_class}{times} at {where}: "
            f"{show_untrusted(alert.detail)}"
        )
    wait = change.wait
    who = f"rank {wait.rank}" if wait.rank is not None else "run"
    where = f" on {show_untrusted(wait.host)}" if wait.host else ""
    age = show_age(wait.age_s, wait.ceiling_s)
    return f"{who}{where}: {show_untrusted(wait.phase)} {age}, then {show_untrusted(wait.outcome)}"


def _tell_run(document: StateDocument) -> str:
    run = document.run
    port = f" on port {run.port}" if run.port is not None else ""
    place = f", {show_untrusted(run.run_dir)}" if run.run_dir else ""
    mode = f"{run.mode} ({show_untrusted(run.mode_reason)})"
    return f"{show_untrusted(run.name)} {run.id}{port}, {mode}{place}"


def _tell_phase(phase: ClusterPhase, document: StateDocument) -> str:
    if phase is ClusterPhase.TRAINING:
        ranks = plural(document.joined_ranks, "rank")
        return f"training: {ranks} on {plural(document.joined_hosts, 'host')}"
    if phase is ClusterPhase.STAGING:
        return "staging: quorum is met, waiting for the operator (flodl start)"
    if phase is ClusterPhase.FAILED and document.end is not None:
        return f"failed: {show_untrusted(document.end.reason)}"
    return phase.value


def _tell_member(member: MemberState) -> str:
    ranks = f"{'rank' if len(member.ranks) == 1 else 'ranks'} {', '.join(map(str, member.ranks))}"
    devices = show_untrusted(", ".join(member.local_devices))
    host = show_untrusted(member.host, limit_chars=64)
    return f"{host} ({show_untrusted(member.address)}): {ranks} on {devices}"


def _tell_epoch(epoch: EpochState, epochs: int) -> str:
    parts = [f"{epoch.epoch + 1}/{epochs} done", f"loss {show_number(epoch.loss)}"]
    if epoch.metric is not None:
        parts.append(_tell_metric(epoch))
    parts += [f"{show_untrusted(name)} {show_number(mean)}" for name, mean in epoch.scalars.items()]
    parts.append(plural(epoch.samples, "sample"))
    if epoch.dropped:
        parts.append(f"{show_count(epoch.dropped)} dropped")
    if epoch.syncs is not None:
        parts.append(plural(epoch.syncs, "sync"))
    parts.append(show_duration(epoch.duration_s))
    return "  ".join(parts)


def _tell_metric(epoch: EpochState) -> str:
    return f"{show_untrusted(epoch.metric_name or 'metric')} {show_number(epoch.metric)}"


def describe_window(document: StateDocument) -> str:
    """Return one line about the open join window."""
    wanted = document.target_ranks or document.min_rank_start
    parts = [f"{document.joined_ranks}/{plural(wanted, 'rank')}"]
    is_manual = document.start_mode == StartMode.MANUAL
    if is_manual and document.cap_remaining_s is not None:
        parts.append(
            f"waits for flodl start, gives up in {show_duration(document.cap_remaining_s)}"
        )
    elif document.window_remaining_s is not None:
        parts.append(f"window closes in {show_duration(document.window_remaining_s)}")
    elif document.cap_remaining_s is not None:
        parts.append(f"gives up in {show_duration(document.cap_remaining_s)}")
    if document.expected_hosts:
        missing = ", ".join(show_untrusted(host) for host in document.expected_hosts)
        parts.append(f"not heard from: {missing}")
    return f"{document.phase.value:<8} {', '.join(parts)}"


def describe_training(document: StateDocument) -> str:
    """Return one line about the training's progress."""
    training = document.training
    if training is None:
        return f"{document.phase.value:<8}"
    parts = [
        f"epoch {min(training.epoch + 1, training.epochs)}/{training.epochs}",
        f"step {show_count(training.global_step)}",
        f"{show_count(training.samples_done)}/{plural(training.samples_total, 'sample')}",
        f"loss {show_number(training.loss)}",
        f"{show_rate(training.throughput)}/s",
        f"eta {show_duration(training.eta_s)}",
    ]
    if document.reduce is not None:
        parts.append(f"sync {show_number(document.reduce.last_sync_ms, digits=3)} ms")
    return f"{'train':<8} {'  '.join(parts)}"


def describe_ranks(document: StateDocument) -> list[str]:
    """Return one line a rank: where it is, how fast, and its share."""
    return [
        f"{'rank ' + str(rank.rank):<8} {show_untrusted(rank.host, limit_chars=32)} "
        f"{show_untrusted(rank.device, limit_chars=16)}  {rank.state.value}  "
        f"{plural(rank.batch_count, 'batch', many='batches')}  "
        f"{show_number(rank.ms_per_batch, digits=3)} ms/batch  "
        f"share {show_percent(rank.share)}  weight {show_percent(rank.weight)}  "
        f"loss {show_number(rank.loss)}  "
        f"heard {show_age(rank.heartbeat_age_s, rank.heartbeat_ceiling_s)}"
        for rank in document.ranks
    ]


def describe_cadence(document: StateDocument) -> list[str]:
    """Return a line about who does how many batches, and why; none where everybody does one."""
    elche = document.elche
    if elche is None or elche.phase == NO_CADENCE:
        return []
    shown = ", ".join(map(str, elche.batch_counts[:MAX_SHOWN_COUNTS]))
    more = "" if len(elche.batch_counts) <= MAX_SHOWN_COUNTS else ", …"
    why = show_untrusted(elche.reason)
    return [f"{'cadence':<8} {show_untrusted(elche.phase)}  counts {shown}{more}  {why}"]
