"""The made-up run's status document at an instant.

What it is: the composition of one document from script, schedule and events.
What it is not: the rows of its ranks; those are `demo.rank_rows`.
Who drives it: `demo.recording`.
"""

import math
from collections.abc import Sequence
from typing import Final

from flodl_console.demo.cohort import NCCL, TORCH
from flodl_console.demo.happenings import FORMING_S, joined_ranks, quorum_at_s
from flodl_console.demo.numbers import Numbers, instant
from flodl_console.demo.rank_rows import Moment, moment_at, rank_rows
from flodl_console.demo.schedule import OVERHEAD_TARGET
from flodl_console.demo.script import BATCH_SAMPLES, STALL_CEILING_S, Refusal, Save, Script
from flodl_console.demo.waiting import waits_at
from flodl_core.ids import ClusterPhase, ExitCode, Mode, StartMode
from flodl_core.telemetry.records import EventKind, EventRecord
from flodl_core.telemetry.state import (
    MAX_ALERT_ROWS,
    MAX_EPOCH_ROWS,
    MAX_REFUSAL_ROWS,
    AlertState,
    CheckpointState,
    ElcheState,
    EndState,
    EpochState,
    JoinSettings,
    MemberState,
    ReduceState,
    RefusalState,
    RunState,
    StateDocument,
    TrainingState,
)
from flodl_core.units import MIB, Seconds

ADDRESS: Final = "10.0.0.5"
PORT: Final = 1337
_GOOD_ENDS: Final = (ExitCode.DONE, ExitCode.STOPPED_SAVED, ExitCode.INTERRUPTED_SAVED)


def compose_document(
    numbers: Numbers, events: Sequence[EventRecord], at_s: Seconds
) -> StateDocument:
    """Return the document of an instant.

    Args:
        numbers: of the scenario.
        events: all that have happened by then, oldest first.
        at_s: seconds since the run began.
    """
    script = numbers.script
    phase = phase_at(numbers, at_s)
    is_formed = script.trained_from_s is not None and at_s >= script.trained_from_s
    moment = moment_at(numbers, at_s) if is_formed and script.cohort.ranks else None
    is_open = phase in (ClusterPhase.WAITING, ClusterPhase.STAGING) and script.min_rank_start > 1
    refused = [refusal for refusal in script.refusals if refusal.at_s <= at_s]
    joined = [host for host, joined_s in _joins(numbers) if joined_s <= at_s]
    return StateDocument(
        run=_run(numbers, at_s, is_formed=is_formed),
        phase=phase,
        joined_ranks=joined_ranks(script, at_s),
        joined_hosts=len(joined),
        min_rank_start=script.min_rank_start,
        target_ranks=script.target_ranks,
        window_remaining_s=_remaining(script.window_s, at_s) if is_open else None,
        cap_remaining_s=_remaining(script.cap_s, at_s) if is_open else None,
        start_mode=script.start_mode.value,
        start_armed=script.armed_at_s is not None and at_s >= script.armed_at_s,
        expected_hosts=tuple(
            script.cohort.hosts[host].name for host, joined_s in _joins(numbers) if joined_s > at_s
        ),
        refusals=len(refused),
        recent_refusals=tuple(_refusal(row) for row in refused[-MAX_REFUSAL_ROWS:]),
        join=_join(numbers),
        newest_window_seq=numbers.schedule.finished(at_s),
        newest_event_seq=events[-1].seq if events else 0,
        last_refusal=f"{refused[-1].host}: {refused[-1].reason}" if refused else None,
        members=tuple(_member(numbers, host) for host in joined),
        training=_training(numbers, moment) if moment else None,
        elche=_elche(numbers, moment) if moment else None,
        reduce=_reduce(numbers, moment) if moment else None,
        ranks=rank_rows(numbers, moment) if moment else (),
        epochs=_epochs(numbers, moment) if moment else (),
        waits=waits_at(numbers, moment) if moment else (),
        alerts=_alerts(events),
        checkpoint=_checkpoint(numbers, at_s),
        end=_end(numbers, at_s),
    )


def phase_at(numbers: Numbers, at_s: Seconds) -> ClusterPhase:
    """Return where the run stands at an instant."""
    script = numbers.script
    ending = script.ending
    if ending is not None and at_s >= ending.at_s:
        return ClusterPhase.DONE if ending.exit_code in _GOOD_ENDS else ClusterPhase.FAILED
    trained_s = script.trained_from_s
    if trained_s is not None and at_s >= trained_s:
        return ClusterPhase.TRAINING
    if trained_s is not None and at_s >= trained_s - FORMING_S:
        return ClusterPhase.FORMING
    quorum_s = quorum_at_s(script)
    if script.start_mode is not StartMode.AUTO and quorum_s is not None and at_s >= quorum_s:
        return ClusterPhase.STAGING
    return ClusterPhase.WAITING


def _joins(numbers: Numbers) -> list[tuple[int, Seconds]]:
    return list(enumerate(numbers.script.joins_s))


def _remaining(limit_s: Seconds, at_s: Seconds) -> Seconds | None:
    return limit_s - at_s if at_s < limit_s else None


def _run(numbers: Numbers, at_s: Seconds, *, is_formed: bool) -> RunState:
    script = numbers.script
    ranks = len(script.cohort.ranks)
    ended_s = script.ending.at_s if script.ending else None
    run_id = f"{0xDE30000000000000 + script.seed % 0xFFFF:016x}"
    return RunState(
        id=run_id,
        name=_name(script),
        mode=Mode.CPU_CADENCE.value,
        mode_reason="auto: ranks may differ in speed, and this version averages through host "
        "memory only",
        started_at=instant(0.0),
        uptime_s=at_s if ended_s is None else min(at_s, ended_s),
        world_size=ranks if is_formed else None,
        port=PORT,
        pid=4242,
        run_dir=f"/srv/runs/{_name(script)}-{run_id}",
    )


def _name(script: Script) -> str:
    """Return the run's name; alone, `lost` or `failed` would read as what became of it."""
    return f"demo-{script.name}"


def _member(numbers: Numbers, index: int) -> MemberState:
    host = numbers.script.cohort.hosts[index]
    return MemberState(
        host=host.name,
        address=host.address,
        ranks=tuple(rank.rank for rank in host.ranks),
        local_devices=tuple(rank.device for rank in host.ranks),
        gpus=tuple(rank.card.name for rank in host.ranks),
        torch_variant=TORCH,
        nccl_version=NCCL,
        joined_at_s=numbers.script.joins_s[index],
    )


def _join(numbers: Numbers) -> JoinSettings | None:
    script = numbers.script
    if script.min_rank_start <= 1:
        return None
    return JoinSettings(
        window_s=script.window_s,
        cap_s=script.cap_s,
        line=f"flodl join {ADDRESS}:{PORT} --token-file token",
    )


def _refusal(row: Refusal) -> RefusalState:
    return RefusalState(
        host=row.host, address=row.address, reason=row.reason, fix=row.fix, at=instant(row.at_s)
    )


def _training(numbers: Numbers, moment: Moment) -> TrainingState:
    done = sum(moment.batches) * BATCH_SAMPLES
    rate = numbers.throughput(moment.finished)
    windows = numbers.schedule.windows
    evaluated = numbers.ended_epochs(done)
    is_over = moment.window is None
    return TrainingState(
        epoch=numbers.epoch(max(0, done - 1) if is_over else done),
        epochs=numbers.script.epochs,
        global_step=sum(moment.batches),
        samples_done=done,
        samples_total=numbers.samples_total,
        loss=numbers.loss(windows[moment.finished - 1]) if moment.finished else None,
        throughput=rate,
        ideal_throughput=numbers.ideal_throughput(moment.at_s),
        eta_s=max(0.0, (numbers.samples_total - done) / rate) if rate else None,
        metric=_accuracy(evaluated) if evaluated else None,
        metric_name="accuracy" if evaluated else None,
    )


def _accuracy(epochs: int) -> float:
    return round(0.94 - 0.5 / math.pow(1.0 + epochs, 0.9), 4)


def _elche(numbers: Numbers, moment: Moment) -> ElcheState:
    windows = numbers.schedule.windows
    last = windows[moment.finished - 1] if moment.finished else None
    shown = moment.window or last
    return ElcheState(
        phase=shown.elche_phase if shown else "probe",
        anchor=shown.anchor if shown else 1,
        anchor_rank=shown.anchor_rank if shown else None,
        batch_counts=shown.plan.counts if shown else (),
        overhead=last.overhead if last else None,
        overhead_target=OVERHEAD_TARGET,
        growth_enabled=last is None or "growth is off" not in last.reason,
        guard="level",
        last_verdict=last.verdict if last else None,
        reason=last.reason if last else "nothing is measured yet",
    )


def _reduce(numbers: Numbers, moment: Moment) -> ReduceState:
    windows, window = numbers.schedule.windows, moment.window
    last = windows[moment.finished - 1] if moment.finished else None
    is_pending = moment.is_pending
    return ReduceState(
        state="pending" if is_pending else "idle",
        backend="cpu",
        cycle=moment.finished + int(is_pending),
        version=moment.finished,
        pending_s=moment.at_s - window.computed_s if window and is_pending else None,
        stall_ceiling_s=STALL_CEILING_S,
        last_sync_ms=last.sync_ms if last else None,
        last_outcome="committed" if last else None,
        bytes=43 * MIB,
    )


def _epochs(numbers: Numbers, moment: Moment) -> tuple[EpochState, ...]:
    ended = numbers.ended_epochs(sum(moment.batches) * BATCH_SAMPLES)
    windows, finished = numbers.schedule.windows, moment.finished
    rows = []
    for epoch in range(max(0, ended - MAX_EPOCH_ROWS), ended):
        first, end = finished * epoch // ended, finished * (epoch + 1) // ended
        last = windows[max(first, end - 1)]
        rows.append(
            EpochState(
                epoch=epoch,
                pass_index=epoch,
                loss=numbers.loss(last),
                samples=numbers.epoch_samples,
                duration_s=last.end_s - windows[first].start_s,
                syncs=max(1, end - first),
                metric=_accuracy(epoch + 1),
                metric_name="accuracy",
            )
        )
    return tuple(rows)


def _alerts(events: Sequence[EventRecord]) -> tuple[AlertState, ...]:
    rows = [event for event in events if event.kind is EventKind.ALERT]
    return tuple(
        AlertState(
            severity=row.severity,
            alert_class=row.name,
            path=row.path,
            detail=row.text,
            at=row.at,
            uptime_s=row.uptime_s,
        )
        for row in rows[-MAX_ALERT_ROWS:]
    )


def _checkpoint(numbers: Numbers, at_s: Seconds) -> CheckpointState | None:
    saves = [f for f in numbers.script.faults if isinstance(f, Save) and f.from_s <= at_s]
    if not saves:
        return None
    ended = [save for save in saves if save.until_s <= at_s]
    good = [save for save in ended if save.error is None]
    version = numbers.schedule.finished(good[-1].from_s) if good else None
    done = sum(numbers.schedule.batches_by_rank(version)) * BATCH_SAMPLES if version else 0
    run = _run(numbers, at_s, is_formed=True)
    return CheckpointState(
        path=f"{run.run_dir}/checkpoints/consensus" if good else None,
        version=version,
        epoch=numbers.epoch(done) if good else None,
        at=instant(good[-1].until_s) if good else None,
        uptime_s=good[-1].until_s if good else None,
        saving=len(ended) < len(saves),
        last_error=ended[-1].error if ended else None,
    )


def _end(numbers: Numbers, at_s: Seconds) -> EndState | None:
    ending = numbers.script.ending
    if ending is None or at_s < ending.at_s:
        return None
    return EndState(exit_code=ending.exit_code, reason=ending.reason, detail=ending.detail)
