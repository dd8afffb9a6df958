"""A status document as lines for people, for one look at a run.

What it is: pure text of one document; the lines are those of the progress.
What it is not: the live view, nor anything that is read again.
Who drives it: `status`.
"""

from flodl_core.ids import ClusterPhase
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.telemetry.progress import (
    describe_cadence,
    describe_ranks,
    describe_training,
    describe_window,
)
from flodl_core.telemetry.quantities import (
    plural,
    show_age,
    show_bytes,
    show_duration,
    show_number,
)
from flodl_core.telemetry.state import AlertState, StateDocument, WaitState

MAX_ALERTS = 5


def render_status(document: StateDocument) -> list[str]:
    """Return what a run is doing: title, window or training, ranks, waits, alerts, end."""
    lines = _title(document)
    if document.phase in (ClusterPhase.WAITING, ClusterPhase.STAGING):
        lines.append(describe_window(document))
        if document.phase is ClusterPhase.STAGING:
            lines.append(_line("next", "quorum is met; `flodl start` closes the window"))
        lines += _members(document)
    elif document.training is not None:
        lines += [describe_training(document), *_reduce(document), *describe_ranks(document)]
        lines += describe_cadence(document)
    lines += [_wait(wait) for wait in document.waits]
    lines += [_alert(alert) for alert in document.alerts[-MAX_ALERTS:]]
    if document.refusals:
        last = show_untrusted(document.last_refusal or "?")
        lines.append(_line("refused", f"{plural(document.refusals, 'join')}; last: {last}"))
    return [*lines, *_checkpoint(document), *_end(document)]


def _line(word: str, text: str) -> str:
    return f"{word:<8} {text}"


def _title(document: StateDocument) -> list[str]:
    run = document.run
    port = "" if run.port is None else f"  port {run.port}"
    name = show_untrusted(run.name, limit_chars=64)
    phase, age = document.phase.value, show_duration(run.uptime_s)
    title = f"{name} {run.id}  {phase}  {run.mode}{port}  {age}"
    place = run.run_dir
    return [title, _line("files", show_untrusted(place))] if place else [title]


def _members(document: StateDocument) -> list[str]:
    return [
        _line(
            "joined",
            f"{show_untrusted(member.host, limit_chars=64)} "
            f"({show_untrusted(member.address)}): "
            f"{plural(len(member.ranks), 'rank')} on "
            f"{show_untrusted(', '.join(member.local_devices))}",
        )
        for member in document.members
    ]


def _reduce(document: StateDocument) -> list[str]:
    reduce = document.reduce
    if reduce is None:
        return []
    pending = ""
    if reduce.pending_s is not None:
        pending = f"  pending {show_age(reduce.pending_s, reduce.stall_ceiling_s)}"
    last = f"last {show_number(reduce.last_sync_ms, digits=3)} ms {reduce.last_outcome or ''}"
    cycle = f"cycle {reduce.cycle}" if reduce.cycle >= 0 else "no cycle yet"
    text = f"{reduce.state}  {cycle}  version {reduce.version}  "
    lines = [_line("reduce", f"{text}{show_bytes(reduce.bytes)}  {last.rstrip()}{pending}")]
    if reduce.outer_lr is not None and reduce.outer_momentum is not None:
        numbers = f"rate {reduce.outer_lr:g}, momentum {reduce.outer_momentum:g}"
        lines.append(_line("outer", f"{show_untrusted(reduce.outer, limit_chars=64)}, {numbers}"))
    return lines


def _wait(wait: WaitState) -> str:
    who = "run" if wait.rank is None else f"rank {wait.rank}"
    where = f" on {show_untrusted(wait.host)}" if wait.host else ""
    age = show_age(wait.age_s, wait.ceiling_s)
    what, then = show_untrusted(wait.phase), show_untrusted(wait.outcome)
    return _line("waiting", f"{who}{where}: {what} {age}, then {then}")


def _alert(alert: AlertState) -> str:
    times = f" × {alert.count}" if alert.count > 1 else ""
    where, what = show_untrusted(alert.path), show_untrusted(alert.detail)
    return _line("alert", f"{alert.severity} {alert.alert_class}{times} at {where}: {what}")


def _checkpoint(document: StateDocument) -> list[str]:
    saved = document.checkpoint
    if saved is None:
        return []
    lines = []
    if saved.path is not None:
        at = f", {saved.at}" if saved.at else ""
        lines.append(_line("saved", f"{show_untrusted(saved.path)} (version {saved.version}{at})"))
    if saved.saving:
        lines.append(_line("saving", "a checkpoint is being written"))
    if saved.last_error:
        lines.append(_line("saving", f"the last try failed: {show_untrusted(saved.last_error)}"))
    return lines


def _end(document: StateDocument) -> list[str]:
    end = document.end
    if end is None:
        return []
    detail = f": {show_untrusted(end.detail)}" if end.detail else ""
    return [_line("ended", f"exit {end.exit_code}, {show_untrusted(end.reason)}{detail}")]
