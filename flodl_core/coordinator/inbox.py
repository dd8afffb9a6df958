"""What each message of a rank changes: the table from message class to deed.

What it is: the one door for rendezvous, timing and metrics messages. Every message
refreshes its rank's liveness; one from a rank that is gone, of another cycle, or of
no use is a Note.
What it is not: a wire; messages arrive decoded.
Who drives it: `coordinator.machine` on RankMessage.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from flodl_core.coordinator import (
    callbacks,
    dead_ranks,
    ending,
    nccl_cycle,
    resuming,
    save_steps,
)
from flodl_core.coordinator.cohort import RankLife, RankRecord
from flodl_core.coordinator.events import HostStatsReported, RankMessage
from flodl_core.coordinator.ledger import LedgerPhase
from flodl_core.coordinator.liveness import BURNING_S
from flodl_core.coordinator.state import SchedulerState
from flodl_core.ids import RankPhase
from flodl_core.messages import metrics, rendezvous, timing
from flodl_core.messages.control import Shutdown
from flodl_core.units import Seconds

_NOT_RUNNING = ("T", "t", "Z", "X")
"""Letters of a process that is stopped, traced or gone."""

Handler = Callable[[SchedulerState, RankRecord, Any, Seconds], None]


def receive(state: SchedulerState, event: RankMessage, now: Seconds) -> None:
    """Take one message of one rank."""
    name = type(event.message).__name__
    record = state.cohort.find(event.rank)
    if record is None:
        state.note("unknown_rank", rank=event.rank, message=name)
        return
    if record.gone:
        _answer_the_gone(state, record, event.message)
        return
    if getattr(event.message, "rank", event.rank) != event.rank:
        state.note("rank_mismatch", rank=event.rank, message=name)
        return
    record.heard_at = now
    handler = HANDLERS.get(type(event.message))
    if handler is None:
        state.note("not_for_coordinator", rank=event.rank, message=name)
        return
    kept_waiting = state.keeps_cycle_waiting(record.rank)
    handler(state, record, event.message, now)
    if kept_waiting and not state.keeps_cycle_waiting(record.rank):
        state.cycle.note_entry(now)


def _answer_the_gone(state: SchedulerState, record: RankRecord, message: object) -> None:
    """A rank that was taken out is told once, so that it ends if it still runs."""
    state.note("message_of_gone_rank", rank=record.rank, message=type(message).__name__)
    if not record.told_dead and not isinstance(message, timing.Exiting):
        record.told_dead = True
        state.send(record.rank, Shutdown())


def take_host_stats(state: SchedulerState, event: HostStatsReported, now: Seconds) -> None:
    """Take what the operating system says of a rank's process."""
    stats = event.stats
    record = state.cohort.find(stats.rank)
    if record is None or record.gone:
        state.note("stats_out_of_place", rank=stats.rank)
        return
    if stats.state in _NOT_RUNNING:
        record.burned_at = None
    elif record.cpu_s is not None and stats.cpu_s - record.cpu_s >= BURNING_S:
        record.burned_at = now
    record.cpu_s = stats.cpu_s


def _hello(
    state: SchedulerState, record: RankRecord, hello: rendezvous.RendezvousHello, now: Seconds
) -> None:
    expected = state.envelope.dataset_sig
    if record.life is RankLife.EXPECTED and hello.dataset_sig != expected:
        ending.give_up(
            state,
            "rendezvous_failed",
            f"{record.where} has dataset {hello.dataset_sig[:8]}, the run has {expected[:8]}; "
            "start every host with the same data",
        )
        return
    if hello.resume_note is not None and record.life is RankLife.EXPECTED:
        resuming.hear_note(state, record, hello.resume_note)
    state.out.extend(state.rendezvous.hear(record, hello, now))


def _uid(state: SchedulerState, record: RankRecord, uid: rendezvous.Uid, now: Seconds) -> None:
    state.out.extend(state.rendezvous.take_uid(record.rank, uid))


def _batches(
    state: SchedulerState, record: RankRecord, message: timing.Batches, now: Seconds
) -> None:
    if record.ledger.phase is LedgerPhase.ARMED:
        state.cycle.note_boundary(now)
    done_at = _done_at(message, record.spaced_from, now)
    gap_ms = 0.0 if record.spaced_from is None else (done_at - record.spaced_from) * 1000.0
    record.spaced_from = done_at
    record.ledger.measure(message.rows, gap_ms)
    for row in message.rows:
        record.batches += 1
        record.measure_batch(row.batch_ms + row.data_ms)
        record.ledger.report(1, row.samples)
        if row.loss is not None:
            record.loss = row.loss if math.isfinite(row.loss) else None
    if message.rows:
        record.progress_at = now


def _done_at(message: timing.Batches, spaced_from: Seconds | None, now: Seconds) -> Seconds:
    """Return when the last batch of a report was done, on our clock: not before the one before."""
    age_s = message.age_ms / 1000.0
    if not 0.0 < age_s < math.inf:
        return now
    return now - age_s if spaced_from is None else max(now - age_s, min(spaced_from, now))


def _ready(
    state: SchedulerState, record: RankRecord, message: timing.SnapshotReady, now: Seconds
) -> None:
    if not state.cycle.take_ready(message):
        state.note(
            "snapshot_of_another_cycle",
            rank=record.rank,
            cycle=message.cycle,
            pending=state.cycle.cycle,
        )
        return
    record.ledger.seal()
    state.cycle.note_entry(now)
    record.enter(RankPhase.TRAINING if state.runs_on else RankPhase.REDUCING, now)


def _ack(state: SchedulerState, record: RankRecord, message: timing.SyncAck, now: Seconds) -> None:
    if not state.cycle.take_ack(message):
        state.note(
            "ack_of_another_cycle",
            rank=record.rank,
            cycle=message.cycle,
            pending=state.cycle.cycle,
        )
        return
    finite = message.divergence is not None and math.isfinite(message.divergence)
    record.divergence = message.divergence if finite else None
    record.enter(RankPhase.TRAINING if state.runs_on else RankPhase.HELD, now)


def _heartbeat(
    state: SchedulerState, record: RankRecord, message: timing.Heartbeat, now: Seconds
) -> None:
    if record.alive:
        lasted_s = message.phase_s if math.isfinite(message.phase_s) else 0.0
        record.enter(message.phase, now - max(0.0, lasted_s))
        record.activity = message.activity


def _lr(state: SchedulerState, record: RankRecord, message: timing.LrUpdate, now: Seconds) -> None:
    record.lr = message.lr if math.isfinite(message.lr) else None


def _resources(
    state: SchedulerState, record: RankRecord, message: timing.ResourceSample, now: Seconds
) -> None:
    record.resources = message


def _exiting(
    state: SchedulerState, record: RankRecord, message: timing.Exiting, now: Seconds
) -> None:
    if message.error is not None:
        dead_ranks.bury(state, record, message.error, now)
    else:
        dead_ranks.let_go(state, record, now)


def _metrics(
    state: SchedulerState, record: RankRecord, message: metrics.MetricsMsg, now: Seconds
) -> None:
    if state.totals is None or message.epoch != state.totals.epoch:
        state.note("metrics_of_another_epoch", rank=record.rank, epoch=message.epoch)
        return
    state.totals.add(message)


def _checkpoint_result(
    state: SchedulerState, record: RankRecord, message: timing.CheckpointResult, now: Seconds
) -> None:
    save_steps.take_answer(state, record, message, now)


def _eval_result(
    state: SchedulerState, record: RankRecord, message: timing.EvalResult, now: Seconds
) -> None:
    callbacks.take_result(state, record, message, now)


def _nccl_answer(
    state: SchedulerState, record: RankRecord, message: timing.NewNcclIdGenerated, now: Seconds
) -> None:
    nccl_cycle.take_answer(state, record, message)


def _nccl_formed(
    state: SchedulerState, record: RankRecord, message: timing.NcclSessionFormed, now: Seconds
) -> None:
    nccl_cycle.take_formed(state, record, message)


HANDLERS: Mapping[type, Handler] = {
    rendezvous.RendezvousHello: _hello,
    rendezvous.Uid: _uid,
    timing.Batches: _batches,
    timing.SnapshotReady: _ready,
    timing.SyncAck: _ack,
    timing.Heartbeat: _heartbeat,
    timing.LrUpdate: _lr,
    timing.ResourceSample: _resources,
    timing.Exiting: _exiting,
    timing.EvalResult: _eval_result,
    timing.CheckpointResult: _checkpoint_result,
    timing.NewNcclIdGenerated: _nccl_answer,
    timing.NcclSessionFormed: _nccl_formed,
    metrics.MetricsMsg: _metrics,
}
