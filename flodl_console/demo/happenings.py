"""What happened in a made-up run, as rows of `GET /events`.

What it is: the script and the schedule told as sentences, in the order of time.
What it is not: a source of facts of its own.
Who drives it: `demo.recording`, once a scenario.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from flodl_console.demo.numbers import Numbers, instant
from flodl_console.demo.script import (
    BATCH_SAMPLES,
    STALL_CEILING_S,
    Loss,
    NonFinite,
    Save,
    Script,
    Silence,
    Stall,
)
from flodl_core.ids import StartMode
from flodl_core.telemetry.records import EventKind, EventRecord
from flodl_core.units import Seconds

FORMING_S = 1.5
"""From the close of the window to the first batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A row before it has its number."""

    at_s: Seconds
    kind: EventKind
    name: str
    text: str
    severity: str = "info"
    rank: int | None = None
    host: int | None = None
    host_label: str | None = None
    fix: str = ""
    who: str | None = None
    cause: str | None = None
    """The name of the draft at the same instant that it follows from."""


def tell(numbers: Numbers) -> tuple[EventRecord, ...]:
    """Return every event of a scenario, oldest first, numbered from 1."""
    script = numbers.script
    drafts = [*_window(script), *_forming(script), *_course(numbers), *_faults(numbers)]
    drafts += _ends(script)
    drafts = [draft for draft in drafts if draft.at_s <= script.length_s]
    drafts.sort(key=lambda draft: draft.at_s)
    roots: dict[tuple[Seconds, str], int] = {}
    rows = []
    for seq, draft in enumerate(drafts, start=1):
        roots.setdefault((draft.at_s, draft.name), seq)
        rows.append(_row(script, draft, seq, roots.get((draft.at_s, draft.cause or ""))))
    return tuple(rows)


def _row(script: Script, draft: _Draft, seq: int, cause_seq: int | None) -> EventRecord:
    hosts = script.cohort.hosts
    parts = ["root"]
    label = draft.host_label
    if draft.host is not None:
        label = hosts[draft.host].name
        if len(hosts) > 1:
            parts.append(label)
    if draft.rank is not None:
        parts.append(f"rank{draft.rank}")
    return EventRecord(
        seq=seq,
        at=instant(draft.at_s),
        uptime_s=draft.at_s,
        kind=draft.kind,
        severity=draft.severity,
        name=draft.name,
        path="/".join(parts),
        rank=draft.rank,
        host=label,
        text=draft.text,
        fix=draft.fix,
        who=draft.who,
        cause_seq=cause_seq,
    )


def _window(script: Script) -> Iterator[_Draft]:
    if script.min_rank_start > 1:
        target = f", target {script.target_ranks}" if script.target_ranks is not None else ""
        yield _Draft(
            at_s=0.0,
            kind=EventKind.LIFECYCLE,
            name="window_opened",
            text=f"the join window is open for {script.window_s:g} s (cap {script.cap_s:g} s): "
            f"quorum {script.min_rank_start} ranks{target}",
        )
    for index, at_s in enumerate(script.joins_s):
        host = script.cohort.hosts[index]
        devices = ", ".join(rank.device for rank in host.ranks)
        yield _Draft(
            at_s=at_s,
            kind=EventKind.ADMISSION,
            name="host_joined",
            host=index,
            text=f"{host.name} joined from {host.address} with {devices}",
        )
    for refusal in script.refusals:
        yield _Draft(
            at_s=refusal.at_s,
            kind=EventKind.REFUSAL,
            name="host_refused",
            severity="warn",
            host_label=refusal.host,
            text=f"{refusal.host} at {refusal.address} was refused: {refusal.reason}",
            fix=refusal.fix,
        )


def _forming(script: Script) -> Iterator[_Draft]:
    staged_s = quorum_at_s(script)
    if staged_s is not None and script.start_mode is not StartMode.AUTO:
        text = "quorum is met; the window closes when the operator starts"
        yield _phase(staged_s, "staging", text)
    if script.armed_at_s is not None:
        ranks = joined_ranks(script, script.armed_at_s)
        yield _Draft(
            at_s=script.armed_at_s,
            kind=EventKind.OPERATOR,
            name="start",
            who="operator at 127.0.0.1",
            text=f"operator at 127.0.0.1 started the run with {ranks} ranks",
        )
    if script.trained_from_s is not None:
        ranks = len(script.cohort.ranks)
        yield _phase(script.trained_from_s - FORMING_S, "forming", "the join window closed")
        yield _phase(script.trained_from_s, "training", f"{ranks} ranks begin to train")


def _phase(at_s: Seconds, phase: str, why: str) -> _Draft:
    return _Draft(at_s=at_s, kind=EventKind.LIFECYCLE, name="phase_changed", text=f"{phase}: {why}")


def _course(numbers: Numbers) -> Iterator[_Draft]:
    anchor, verdict, epoch, was_cut = 0, "stable", 0, False
    for window in numbers.schedule.windows:
        if window.anchor != anchor and anchor:
            text = f"windows have {window.anchor} batches of rank {window.anchor_rank}, {anchor} "
            yield _happened(window.start_s, "anchor_changed", f"{text}before")
        if window.verdict != verdict:
            severity = "info" if window.verdict == "stable" else "warn"
            yield _happened(window.end_s, "verdict_changed", window.verdict, severity=severity)
        if window.plan.is_cut and not was_cut:
            text = f"cycle {window.cycle} was cut: a rank is late"
            yield _happened(window.end_s, "window_cut", text, severity="warn")
        samples = (window.batches_before + window.plan.batches) * BATCH_SAMPLES
        ended = numbers.ended_epochs(samples)
        if ended > epoch:
            loss = numbers.loss(window)
            text = f"epoch {ended} ended: loss {loss:.4f}, {numbers.epoch_samples:,} samples"
            yield _happened(window.end_s, "epoch_ended", text)
            epoch = ended
        anchor, verdict, was_cut = window.anchor, window.verdict, window.plan.is_cut


def _happened(at_s: Seconds, name: str, text: str, *, severity: str = "info") -> _Draft:
    return _Draft(at_s=at_s, kind=EventKind.LIFECYCLE, name=name, text=text, severity=severity)


def _faults(numbers: Numbers) -> Iterator[_Draft]:
    for fault in numbers.script.faults:
        match fault:
            case Loss(rank=rank, at_s=at_s, signal=signal):
                yield _lost(numbers.script, rank, at_s, f"its process ended with {signal}")
            case Silence():
                yield from _silence(numbers.script, fault)
            case NonFinite(rank=rank, at_s=at_s):
                yield _nonfinite(numbers, rank, at_s)
            case Save():
                yield from _save(numbers, fault)
            case Stall(rank=rank, from_s=from_s):
                yield _stall(numbers, rank, from_s)
            case _:
                continue


def _lost(
    script: Script, rank: int, at_s: Seconds, cause: str, *, follows: str | None = None
) -> _Draft:
    return _Draft(
        at_s=at_s,
        kind=EventKind.ALERT,
        name="rank_lost",
        severity="critical",
        rank=rank,
        host=script.cohort.ranks[rank].host,
        text=f"{script.cohort.where(rank)} was lost: {cause}",
        cause=follows,
    )


def _silence(script: Script, fault: Silence) -> Iterator[_Draft]:
    host = script.cohort.hosts[fault.host]
    waited_s = fault.until_s - fault.from_s
    yield _Draft(
        at_s=fault.until_s,
        kind=EventKind.ALERT,
        name="host_lost",
        severity="critical",
        host=fault.host,
        text=f"{host.name} ({host.address}) was lost: silent for {waited_s:.0f} s "
        f"(ceiling {waited_s:g} s), all its ranks together: the relay or its link",
    )
    for row in host.ranks:
        if script.lost_at_s[row.rank] == fault.until_s:
            cause = f"its host {host.name} was lost"
            yield _lost(script, row.rank, fault.until_s, cause, follows="host_lost")


def _nonfinite(numbers: Numbers, rank: int, at_s: Seconds) -> _Draft:
    window = numbers.schedule.under_way(at_s)
    cycle, end_s = (window.cycle, window.end_s) if window else (0, at_s)
    script = numbers.script
    return _Draft(
        at_s=end_s,
        kind=EventKind.ALERT,
        name="nonfinite",
        severity="warn",
        rank=rank,
        host=script.cohort.ranks[rank].host,
        text=f"the values of {script.cohort.where(rank)} are not finite in cycle {cycle}; "
        "it adopts the consensus",
    )


def _save(numbers: Numbers, fault: Save) -> Iterator[_Draft]:
    version = numbers.schedule.finished(fault.from_s)
    if fault.who is not None:
        yield _Draft(
            at_s=fault.from_s,
            kind=EventKind.OPERATOR,
            name="checkpoint",
            who=fault.who,
            text=f"{fault.who} asked for a checkpoint",
        )
    if fault.error is None:
        text = f"version {version} was saved in {fault.until_s - fault.from_s:.1f} s"
        yield _happened(fault.until_s, "save_written", text)
        return
    yield _Draft(
        at_s=fault.until_s,
        kind=EventKind.ALERT,
        name="save_failed",
        severity="warn",
        text=f"version {version} was not saved: {fault.error}",
    )


def _stall(numbers: Numbers, rank: int, from_s: Seconds) -> _Draft:
    window = numbers.schedule.under_way(from_s)
    cycle, computed_s = (window.cycle, window.computed_s) if window else (0, from_s)
    return _Draft(
        at_s=computed_s + STALL_CEILING_S,
        kind=EventKind.ALERT,
        name="reduce_stall",
        severity="critical",
        text=f"cycle {cycle} is reducing; not acknowledged by ranks: {rank} "
        f"for {STALL_CEILING_S:.0f} s (ceiling {STALL_CEILING_S:g} s)",
    )


def _ends(script: Script) -> Iterator[_Draft]:
    if script.stop is not None:
        yield _Draft(
            at_s=script.stop.at_s,
            kind=EventKind.OPERATOR,
            name="stop",
            who=script.stop.who,
            text=f"{script.stop.who} asked to stop: cutting the window, then saving (within 25 s)",
        )
    if script.ending is not None:
        ending = script.ending
        yield _Draft(
            at_s=ending.at_s,
            kind=EventKind.LIFECYCLE,
            name="run_ended",
            severity="info" if ending.exit_code in (0, 4) else "critical",
            text=f"the run ended with exit code {ending.exit_code}, {ending.reason}: "
            f"{ending.detail}",
        )


def quorum_at_s(script: Script) -> Seconds | None:
    """Return when enough ranks were in; None if they never are."""
    order = sorted(range(len(script.joins_s)), key=lambda index: script.joins_s[index])
    sums = accumulate(len(script.cohort.hosts[index].ranks) for index in order)
    for index, ranks in zip(order, sums, strict=True):
        if ranks >= script.min_rank_start:
            return script.joins_s[index]
    return None


def joined_ranks(script: Script, at_s: Seconds) -> int:
    """Return how many ranks are in at an instant."""
    hosts = zip(script.cohort.hosts, script.joins_s, strict=True)
    return sum(len(host.ranks) for host, joined_s in hosts if joined_s <= at_s)
