"""Composes the status document from the machines' own views; decides nothing.

Absent is null: before a world forms there is no training, no reduce and no rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flodl_core.coordinator.state import EpochFacts
from flodl_core.coordinator.view import CoordinatorView, ElcheView, RankView, TrainingView
from flodl_core.ids import ClusterPhase
from flodl_core.membership.snapshot import MembershipSnapshot
from flodl_core.messages.join import HostStats
from flodl_core.telemetry.state import (
    MAX_EPOCH_ROWS,
    MAX_WAIT_ROWS,
    AlertState,
    CheckpointState,
    ElcheState,
    EndState,
    EpochState,
    MemberState,
    RankState,
    ReduceState,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What the document is composed of, at one moment."""

    uptime_s: Seconds
    port: int | None
    phase: ClusterPhase
    membership: MembershipSnapshot
    refused_joins: int
    last_refusal: str | None
    coordinator: CoordinatorView | None = None
    alerts: tuple[AlertState, ...] = ()
    checkpoint: CheckpointState | None = None
    resources: Mapping[int, ResourceState] | None = None
    end: EndState | None = None


def compose_document(facts: RunFacts, parts: RunParts) -> StateDocument:
    """Return the status document of this moment."""
    members, view = parts.membership, parts.coordinator
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
        last_refusal=parts.last_refusal,
        members=tuple(
            MemberState(
                host=member.host,
                address=member.address,
                ranks=member.ranks,
                local_devices=member.local_devices,
                gpus=member.gpus,
                torch_variant=member.torch_variant,
                joined_at_s=member.joined_at_s,
            )
            for member in members.members
        ),
        training=_training(view.training, evaluated) if view else None,
        elche=_elche(view.elche) if view else None,
        reduce=_reduce(view) if view else None,
        ranks=tuple(_rank(row, parts.resources or {}) for row in view.ranks) if view else (),
        epochs=_epochs(view) if view else (),
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


def _training(view: TrainingView, evaluated: Sequence[EpochFacts]) -> TrainingState:
    last = evaluated[-1] if evaluated else None
    return TrainingState(
        epoch=view.epoch,
        epochs=view.epochs,
        global_step=view.global_step,
        samples_done=view.samples_done,
        samples_total=view.samples_total,
        samples_dropped=view.samples_dropped,
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
        overhead=elche.overhead,
        overhead_target=elche.overhead_target,
        window_cap_binding=elche.window_cap_binding,
        growth_enabled=elche.growth_enabled,
        guard=elche.guard,
        last_verdict=elche.last_verdict,
        reason=elche.reason,
    )


def _reduce(view: CoordinatorView) -> ReduceState:
    reduce = view.reduce
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
    )


def _rank(row: RankView, resources: Mapping[int, ResourceState]) -> RankState:
    return RankState(
        rank=row.rank,
        host=row.host,
        device=row.device,
        state=row.state,
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
        resources=resources.get(row.rank),
    )


def _epochs(view: CoordinatorView) -> tuple[EpochState, ...]:
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
        )
        for epoch in view.epochs[-MAX_EPOCH_ROWS:]
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
