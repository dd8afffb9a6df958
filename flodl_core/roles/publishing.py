"""Composes the status document from the machines' own views; decides nothing.

Absent is null: before a world forms there is no training, no reduce and no rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flodl_core.coordinator.facts import EpochFacts
from flodl_core.coordinator.view import CoordinatorView, ElcheView, RankView, TrainingView
from flodl_core.ids import ClusterPhase, OuterKind
from flodl_core.membership.snapshot import MemberRow, MembershipSnapshot
from flodl_core.messages.join import HostStats
from flodl_core.messages.timing import ResourceSample
from flodl_core.telemetry.state import (
    MAX_EPOCH_ROWS,
    MAX_WAIT_ROWS,
    AlertState,
    CheckpointState,
    ElcheState,
    EndState,
    EpochState,
    JoinSettings,
    MemberState,
    RankState,
    ReduceState,
    RefusalState,
    ResourceState,
    RunState,
    StateDocument,
    TrainingState,
    WaitState,
)
from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What does not change while a run is on."""

    run_id: str
    name: str
    mode: str
    mode_reason: str
    started_at: str
    pid: int
    run_dir: Path
    configured_hosts: tuple[str, ...]
    resumed_from: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What the document is composed of, at one moment."""

    uptime_s: Seconds
    port: int | None
    phase: ClusterPhase
    membership: MembershipSnapshot
    refused_joins: int
    refusals: tuple[RefusalState, ...] = ()
    """The last ones, oldest first."""
    dropped_connections: Mapping[str, int] = field(default_factory=dict)
    refused_requests: Mapping[str, int] = field(default_factory=dict)
    join: JoinSettings | None = None
    newest_window_seq: int = 0
    newest_event_seq: int = 0
    coordinator: CoordinatorView | None = None
    alerts: tuple[AlertState, ...] = ()
    checkpoint: CheckpointState | None = None
    resources: Mapping[int, ResourceState] | None = None
    end: EndState | None = None


def compose_document(facts: RunFacts, parts: RunParts) -> StateDocument:
    """Return the status document of this moment."""
    members, view = parts.membership, parts.coordinator
    gpus = gpu_names(members.members)
    names = {member.host for member in members.members}
    evaluated = [epoch for epoch in view.epochs if epoch.metric is not None] if view else []
    reports = [epoch.report for epoch in view.epochs if epoch.report] if view else []
    return StateDocument(
        run=RunState(
            id=facts.run_id,
            name=facts.name,
            mode=facts.mode,
            mode_reason=facts.mode_reason,
            started_at=facts.started_at,
            uptime_s=parts.uptime_s,
            world_size=len(view.ranks) if view else None,
            port=parts.port,
            pid=facts.pid,
            run_dir=str(facts.run_dir),
            resumed_from=facts.resumed_from,
        ),
        phase=parts.phase,
        joined_ranks=members.joined_ranks,
        joined_hosts=members.joined_hosts,
        min_rank_start=members.min_rank_start,
        target_ranks=members.target_ranks,
        window_remaining_s=members.window_remaining_s,
        cap_remaining_s=members.cap_remaining_s,
        start_mode=members.start_mode.value,
        start_armed=members.start_armed,
        expected_hosts=tuple(host for host in facts.configured_hosts if host not in names),
        refusals=parts.refused_joins,
        last_refusal=last_refusal(parts.refusals),
        recent_refusals=parts.refusals,
        dropped_connections=dict(parts.dropped_connections),
        refused_requests=dict(parts.refused_requests),
        join=parts.join,
        newest_window_seq=parts.newest_window_seq,
        newest_event_seq=parts.newest_event_seq,
        members=tuple(
            MemberState(
                host=member.host,
                address=member.address,
                ranks=member.ranks,
                local_devices=member.local_devices,
                gpus=member.gpus,
                torch_variant=member.torch_variant,
                nccl_version=member.nccl_version,
                joined_at_s=member.joined_at_s,
            )
            for member in members.members
        ),
        training=_training(view.training, evaluated) if view else None,
        elche=_elche(view.elche) if view else None,
        reduce=_reduce(view) if view else None,
        ranks=(
            tuple(
                _rank(row, (parts.resources or {}).get(row.rank), gpus.get(row.rank))
                for row in view.ranks
            )
            if view
            else ()
        ),
        epochs=epoch_rows(view.epochs[-MAX_EPOCH_ROWS:]) if view else (),
        waits=_waits(view) if view else (),
        alerts=parts.alerts,
        checkpoint=parts.checkpoint,
        report=reports[-1] if reports else None,
        end=parts.end,
    )


def resources_of(before: HostStats | None, now: HostStats, span_s: Seconds) -> ResourceState:
    """Return what a rank uses, from two samples of the operating system."""
    percent = None
    if before is not None and span_s > 0:
        percent = max(0.0, 100.0 * (now.cpu_s - before.cpu_s) / span_s)
    return ResourceState(cpu_percent=percent, ram_used_bytes=now.rss)


def last_refusal(refusals: Sequence[RefusalState]) -> str | None:
    """Return the newest refusal as one line; None if there is none."""
    return f"{refusals[-1].address}: {refusals[-1].reason}" if refusals else None


def gpu_names(members: Sequence[MemberRow]) -> dict[int, str]:
    """Return the name of each rank's GPU, where its host has told one for that device."""
    names: dict[int, str] = {}
    for member in members:
        for rank, device in zip(member.ranks, member.local_devices, strict=False):
            kind, _, number = device.partition(":")
            index = int(number) if kind == "cuda" and number.isdecimal() else len(member.gpus)
            if index < len(member.gpus):
                names[rank] = member.gpus[index]
    return names


def used_by(process: ResourceState | None, device: ResourceSample | None) -> ResourceState | None:
    """Join what the host says of a rank's process and what the rank says of its device."""
    if device is None:
        return process
    base = process or ResourceState(
        cpu_percent=device.cpu_percent, ram_used_bytes=device.ram_used_bytes
    )
    return base.model_copy(
        update={
            "gpu_percent": device.gpu_percent,
            "vram_used_bytes": device.vram_used_bytes,
            "vram_total_bytes": device.vram_total_bytes,
        }
    )


def _training(view: TrainingView, evaluated: Sequence[EpochFacts]) -> TrainingState:
    last = evaluated[-1] if evaluated else None
    return TrainingState(
        epoch=view.epoch,
        epochs=view.epochs,
        global_step=view.global_step,
        samples_done=view.samples_done,
        samples_total=view.samples_total,
        samples_dropped=view.samples_dropped,
        syncs=view.syncs,
        loss=view.loss,
        throughput=view.throughput,
        ideal_throughput=view.ideal_throughput,
        eta_s=view.eta_s,
        metric=last.metric if last else None,
        metric_name=last.metric_name if last else None,
    )


def _elche(elche: ElcheView) -> ElcheState:
    return ElcheState(
        phase=elche.phase,
        anchor=elche.anchor,
        anchor_rank=elche.anchor_rank,
        batch_counts=elche.batch_counts,
        overshoot=elche.overshoot,
        overhead=elche.overhead,
        overhead_target=elche.overhead_target,
        window_cap_binding=elche.window_cap_binding,
        growth_enabled=elche.growth_enabled,
        guard=elche.guard,
        guard_failures=elche.guard_failures,
        last_verdict=elche.last_verdict,
        verdict_by=elche.verdict_by,
        recent_shares=elche.recent_shares,
        reason=elche.reason,
    )


def _reduce(view: CoordinatorView) -> ReduceState:
    reduce = view.reduce
    outer = reduce.outer
    return ReduceState(
        state=reduce.state,
        backend=reduce.backend,
        cycle=reduce.cycle,
        version=reduce.version or 0,
        pending_s=reduce.pending_s,
        stall_ceiling_s=reduce.stall_ceiling_s,
        last_sync_ms=reduce.last_sync_ms,
        last_outcome=reduce.last_outcome,
        bytes=reduce.bytes,
        outer=(outer.kind if outer is not None else OuterKind.AVG).value,
        outer_lr=outer.lr if outer is not None else None,
        outer_momentum=outer.momentum if outer is not None else None,
    )


def _rank(row: RankView, process: ResourceState | None, gpu: str | None) -> RankState:
    return RankState(
        rank=row.rank,
        host=row.host,
        device=row.device,
        gpu=gpu,
        state=row.state,
        cause=row.cause,
        phase=row.phase.value,
        batch_count=row.batch_count,
        planned_batches=row.planned_batches,
        steps_in_window=row.steps_in_window,
        ms_per_batch=row.ms_per_batch,
        samples=row.samples,
        share=row.share,
        weight=row.weight,
        throughput=row.throughput,
        loss=row.loss,
        divergence=row.divergence,
        heartbeat_age_s=row.heartbeat_age_s,
        heartbeat_ceiling_s=row.heartbeat_ceiling_s,
        progress_age_s=row.progress_age_s,
        progress_ceiling_s=row.progress_ceiling_s,
        throttled=row.throttled,
        resources=used_by(process, row.resources),
    )


def epoch_rows(epochs: Sequence[EpochFacts]) -> tuple[EpochState, ...]:
    """Return finished epochs as the status document shows them."""
    return tuple(
        EpochState(
            epoch=epoch.epoch,
            pass_index=epoch.pass_index,
            loss=epoch.loss,
            samples=epoch.samples,
            dropped=epoch.dropped,
            duration_s=epoch.duration_s,
            syncs=epoch.syncs,
            metric=epoch.metric,
            metric_name=epoch.metric_name,
            scalars=dict(epoch.scalars),
        )
        for epoch in epochs
    )


def _waits(view: CoordinatorView) -> tuple[WaitState, ...]:
    return tuple(
        WaitState(
            rank=wait.rank,
            host=wait.host,
            phase=wait.phase,
            age_s=wait.age_s,
            ceiling_s=wait.ceiling_s,
            outcome=wait.outcome,
        )
        for wait in view.waits[:MAX_WAIT_ROWS]
    )
