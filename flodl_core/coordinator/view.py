"""What the status document needs of the coordinator, frozen.

What it is: one record of the whole run at one moment, composed on demand. Absent is
None. Ages are seconds before that moment.
What it is not: state; it is thrown away after use.
Who drives it: the launcher publishes it, the summary and the simulator read it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flodl_core.coordinator.ceiling import Ceiling
from flodl_core.coordinator.cohort import RankLife, RankRecord
from flodl_core.coordinator.facts import EpochFacts
from flodl_core.coordinator.liveness import heartbeat_ceiling
from flodl_core.coordinator.saves import SavePhase
from flodl_core.coordinator.state import RunStage, SchedulerState
from flodl_core.coordinator.tick import averaging_since, progress_ceiling
from flodl_core.coordinator.waits import WaitView, list_waits
from flodl_core.ids import HostName, Rank, RankPhase
from flodl_core.messages.job import OuterSpec
from flodl_core.messages.timing import ResourceSample
from flodl_core.units import Milliseconds, Seconds

_F32_BYTES = 4


@dataclass(frozen=True, slots=True)
class TrainingView:
    """How far the training is; `epoch` and `epochs` count events."""

    epoch: int
    epochs: int
    epoch_splits: int
    global_step: int
    syncs: int
    samples_done: int
    samples_total: int
    samples_dropped: int
    tail_samples: int
    """Samples of each pass that are left out, being less than a batch."""
    loss: float | None
    lr: float | None
    throughput: float | None
    """Samples a second, over the last half minute."""
    ideal_throughput: float | None
    """Samples a second if nothing but the steps took time."""
    eta_s: Seconds | None


@dataclass(frozen=True, slots=True)
class ReduceView:
    """Where the averaging stands."""

    state: str
    """idle or pending."""
    phase: str
    backend: str
    cycle: int
    version: int | None
    pending_s: Seconds | None
    stall_ceiling_s: Seconds | None
    """Age at which the average ends the run; None while it waits for a batch."""
    last_sync_ms: Milliseconds | None
    last_outcome: str | None
    bytes: int
    """Parameter and buffer bytes that one cycle averages."""
    outer: OuterSpec | None = None
    """What is made of an average; None adopts it as it is."""


@dataclass(frozen=True, slots=True)
class ElcheView:
    """Who does how many batches between two averages; in Sync everybody does one."""

    phase: str
    anchor: int
    anchor_rank: Rank | None
    batch_counts: tuple[int, ...]
    """By rank of the world; 0 for who is gone."""
    overhead: float | None
    overhead_target: float | None
    window_cap_binding: bool
    growth_enabled: bool
    guard: str
    last_verdict: str | None
    reason: str
    verdict_by: str | None = None
    """Who gave the last verdict: the guard, the meta-controller, or both."""
    guard_failures: int = 0
    """Cycles in which the guard raised or returned no verdict; they counted as stable."""
    overshoot: int | None = None
    """Batches that the fastest rank may run on beyond its count; None where none runs on."""
    recent_shares: tuple[float, ...] = ()
    """Part of the batches by rank of the world, over the last ten windows; 0 for who is gone."""


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank with its two signals."""

    rank: Rank
    host: HostName
    device: str
    state: RankPhase
    phase: RankPhase
    cause: str
    """Why it is gone; empty while it is not."""
    batch_count: int
    planned_batches: int | None
    """Batches planned for the window under way; None while none is dealt."""
    steps_in_window: int
    ms_per_batch: Milliseconds | None
    samples: int
    samples_dropped: int
    share: float | None
    weight: float | None
    throughput: float | None
    loss: float | None
    divergence: float | None
    heartbeat_age_s: Seconds | None
    heartbeat_ceiling_s: Seconds
    progress_age_s: Seconds | None
    progress_ceiling_s: Seconds | None
    throttled: bool
    resources: ResourceSample | None


@dataclass(frozen=True, slots=True)
class SaveView:
    """The save under way and the last one that is complete."""

    phase: SavePhase
    saved_version: int | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class CoordinatorView:
    """Everything at one moment."""

    stage: RunStage
    reason: str
    """What holds the gate, or how the run ends."""
    training: TrainingView
    elche: ElcheView
    reduce: ReduceView
    ranks: tuple[RankView, ...]
    waits: tuple[WaitView, ...]
    epochs: tuple[EpochFacts, ...]
    saves: SaveView


def compose_view(state: SchedulerState, now: Seconds) -> CoordinatorView:
    """Freeze everything that a reader may know at `now`."""
    reason = state.verdict.reason if state.verdict else ""
    if state.closing is not None:
        reason = state.closing.detail
    return CoordinatorView(
        stage=state.stage,
        reason=reason,
        training=training_view(state, now),
        elche=elche_view(state),
        reduce=_reduce(state, now),
        ranks=_ranks(state, now),
        waits=list_waits(state, now),
        epochs=tuple(state.epochs),
        saves=SaveView(
            phase=state.saves.phase,
            saved_version=state.saves.saved_version,
            last_error=state.saves.last_error,
        ),
    )


def training_view(state: SchedulerState, now: Seconds) -> TrainingView:
    """Freeze how far the training is."""
    book, spec = state.book, state.spec
    rate = _throughput(state, now)
    done = book.trained_samples + book.dropped_samples
    left = book.total_samples - done
    return TrainingView(
        epoch=book.open.span.event if book.open else book.next_event,
        epochs=book.events,
        epoch_splits=spec.epoch_splits,
        global_step=state.global_step,
        syncs=state.syncs,
        samples_done=book.trained_samples,
        samples_total=book.total_samples,
        samples_dropped=book.dropped_samples,
        tail_samples=book.tail_samples,
        loss=_loss(state),
        lr=next((record.lr for record in state.cohort.alive if record.lr is not None), None),
        throughput=rate,
        ideal_throughput=_ideal(state),
        eta_s=left / rate if rate else None,
    )


def _loss(state: SchedulerState) -> float | None:
    known = [record.loss for record in _counted(state) if record.loss is not None]
    return sum(known) / len(known) if known else None


def _throughput(state: SchedulerState, now: Seconds) -> float | None:
    return state.rates.rate([record.rank for record in _counted(state)], now)


def _counted(state: SchedulerState) -> Sequence[RankRecord]:
    """The ranks that stand for the run: those that are here, or at its end were."""
    left = (record for record in state.cohort if record.life is not RankLife.DEAD)
    return state.cohort.alive or tuple(left)


def _ideal(state: SchedulerState) -> float | None:
    means = [record.mean_batch_ms for record in state.cohort.alive]
    known = [mean for mean in means if mean]
    if not known:
        return None
    return sum(state.spec.batch_size * 1000.0 / mean for mean in known)


def elche_view(state: SchedulerState) -> ElcheView:
    """Freeze who does how many batches, and why."""
    cadence = state.cadence
    if cadence is None:
        return ElcheView(
            phase="inapplicable",
            anchor=1,
            anchor_rank=None,
            batch_counts=tuple(int(not record.gone) for record in state.cohort),
            overhead=None,
            overhead_target=None,
            window_cap_binding=False,
            growth_enabled=False,
            guard="none",
            last_verdict=None,
            reason="sync: every rank does one batch between two averages",
        )
    balancer = cadence.balancer
    return ElcheView(
        phase=balancer.phase.value,
        anchor=balancer.anchor,
        anchor_rank=balancer.anchor_rank,
        batch_counts=cadence.counts,
        overhead=balancer.overhead,
        overhead_target=balancer.overhead_target,
        window_cap_binding=balancer.window_cap_binding,
        growth_enabled=balancer.growth_enabled,
        guard=cadence.guard_name,
        last_verdict=cadence.last_verdict,
        reason=balancer.reason,
        verdict_by=cadence.verdict_by,
        guard_failures=cadence.judge.failures,
        recent_shares=cadence.recent_shares,
        overshoot=cadence.overshoot,
    )


def _reduce(state: SchedulerState, now: Seconds) -> ReduceView:
    cycle, geometry = state.cycle, state.envelope.geometry
    return ReduceView(
        state="pending" if cycle.pending else "idle",
        phase=cycle.phase.value,
        backend="cpu" if state.nccl is None else "nccl",
        cycle=cycle.last_cycle,
        version=state.committed_version,
        pending_s=now - cycle.since if cycle.since is not None else None,
        stall_ceiling_s=_stall_ceiling(state),
        last_sync_ms=cycle.last_sync_ms,
        last_outcome=cycle.last_outcome,
        bytes=(geometry.params_numel + geometry.buffers_numel) * _F32_BYTES,
        outer=state.spec.outer,
    )


def _stall_ceiling(state: SchedulerState) -> Seconds | None:
    """At what age the average under way ends the run; None while it waits for a batch."""
    limit_s, triggered = state.spec.stall_timeout_s, state.cycle.since
    if triggered is None:
        return limit_s
    since = averaging_since(state)
    return since - triggered + limit_s if since is not None else None


def _ranks(state: SchedulerState, now: Seconds) -> tuple[RankView, ...]:
    trained = sum(one.trained_samples for one in state.cohort)
    return tuple(_rank(state, one, now, trained=trained) for one in state.cohort)


def _rank(state: SchedulerState, record: RankRecord, now: Seconds, *, trained: int) -> RankView:
    heartbeat = heartbeat_ceiling(record, state.spec) if record.alive else None
    progress = progress_ceiling(state, record.rank)
    share = record.trained_samples / trained if trained else None
    mean = record.mean_batch_ms
    return RankView(
        rank=record.rank,
        host=record.host,
        device=record.device,
        state=_state_of(state, record),
        phase=record.phase,
        cause=record.cause,
        batch_count=record.batches,
        planned_batches=record.planned_batches if record.alive and state.book.open else None,
        steps_in_window=record.ledger.open_batches + record.ledger.closing_batches,
        ms_per_batch=mean,
        samples=record.trained_samples,
        samples_dropped=record.dropped_samples,
        share=share,
        weight=record.weight,
        throughput=state.rates.rate([record.rank], now) if record.alive else None,
        loss=record.loss,
        divergence=record.divergence,
        heartbeat_age_s=_age(heartbeat, now),
        heartbeat_ceiling_s=state.spec.heartbeat_timeout_s,
        progress_age_s=_age(progress, now),
        progress_ceiling_s=progress.limit_s if progress else None,
        throttled=record.throttled,
        resources=record.resources,
    )


def _age(ceiling: Ceiling | None, now: Seconds) -> Seconds | None:
    return ceiling.age(now) if ceiling else None


def _state_of(state: SchedulerState, record: RankRecord) -> RankPhase:
    """The word for a rank: what the coordinator knows beats what the rank last said."""
    if record.life is RankLife.DEAD:
        return RankPhase.LOST
    if record.life in (RankLife.EXITED, RankLife.LEAVING):
        return RankPhase.DONE
    if record.life is RankLife.EXPECTED:
        return RankPhase.SPAWNING
    if record.phase is RankPhase.BUSY:
        return RankPhase.BUSY
    save, wait = state.saves.current, state.evaluation
    if wait is not None and wait.target == record.rank:
        return RankPhase.CALLBACK
    if save is not None and record.rank in save.owed:
        return RankPhase.SAVING
    if state.cycle.pending:
        evidence = state.cycle.evidence(record.rank)
        if evidence.ack is not None:
            return RankPhase.HELD
        return RankPhase.SNAPSHOT if evidence.ready is None else RankPhase.REDUCING
    if state.may_step(record.rank):
        return RankPhase.TRAINING
    return RankPhase.HELD if state.stage is RunStage.TRAINING else RankPhase.WAITING
