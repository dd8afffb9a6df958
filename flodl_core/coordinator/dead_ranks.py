"""What follows a death: the rank's samples come back and go to the survivors.

What it is: the chain of one loss, in order: alert, mark, tell root and relay, take
back its samples, give them to survivors, re-target what it owed. Samples that may be
in a pending cycle stay in limbo until that cycle's params round has ended, because a
rank that dies after its ready mark is still in the round.
What it is not: the detection; `liveness` and the roles report.
Who drives it: `coordinator.inbox`, `tick`, `averaging` (evictions).
"""

from collections.abc import Sequence

from flodl_core.coordinator import callbacks, ending, nccl_cycle
from flodl_core.coordinator.cohort import RankLife, RankRecord
from flodl_core.coordinator.effects import DeclareRankDead, DropHost, EvictRank, Severity
from flodl_core.coordinator.save_steps import asked_rank_lost
from flodl_core.coordinator.state import RunStage, SchedulerState
from flodl_core.dispatch.ranges import Range
from flodl_core.ids import HostName, Rank, RankPhase, SaveReason
from flodl_core.messages.control import ExtendPartition
from flodl_core.units import Seconds

FIRST_RANK = Rank(0)


def evict(state: SchedulerState, record: RankRecord, reason: str, now: Seconds) -> None:
    """End a rank that answers but must not go on, and go on without it."""
    state.out.append(EvictRank(record.rank, reason))
    bury(state, record, f"evicted: {reason}", now)


def bury(state: SchedulerState, record: RankRecord, cause: str, now: Seconds) -> None:
    """Take a rank out of the run because it was lost."""
    if record.gone or state.stage is RunStage.ENDED:
        state.note("gone_already", rank=record.rank, cause=cause)
        return
    if state.stage is RunStage.LEAVING or record.life is RankLife.LEAVING:
        state.cohort.set_life(record, RankLife.EXITED)
        record.cause, record.phase = cause, RankPhase.DONE
        return
    never_heard = record.life is RankLife.EXPECTED
    state.first_cause = state.first_cause or f"{record.where}: {cause}"
    state.alert(
        Severity.CRITICAL, "rank_lost", f"{record.where} was lost: {cause}", rank=record.rank
    )
    _take_out(state, record, RankLife.DEAD, cause)
    note_host(state, record.host, now)
    if never_heard:
        ending.give_up(
            state, "rendezvous_failed", f"{record.where} ended before it said Hello: {cause}"
        )
        return
    _go_on_without(state, record, now)


def let_go(state: SchedulerState, record: RankRecord, now: Seconds) -> None:
    """A rank said Exiting without an error: it is no loss, but it takes no further part."""
    if record.life is RankLife.LEAVING:
        state.cohort.set_life(record, RankLife.EXITED)
        note_host(state, record.host, now)
        return
    _take_out(state, record, RankLife.EXITED, "exited")
    note_host(state, record.host, now)
    if state.stage is not RunStage.LEAVING:
        state.note("exited_early", rank=record.rank)
        _go_on_without(state, record, now)


def _take_out(state: SchedulerState, record: RankRecord, life: RankLife, cause: str) -> None:
    record.cause = cause
    is_dead = life is RankLife.DEAD
    record.phase = RankPhase.LOST if is_dead else RankPhase.DONE
    if is_dead:
        record.weight = None
    if state.cadence is not None and state.stage is not RunStage.LEAVING:
        state.cadence.lose(record.rank)
    if state.window is not None:
        state.window.shrunk = True
        state.disturb("a rank is gone")
    state.cohort.set_life(record, life)
    state.out.append(DeclareRankDead(record.rank, cause))


def note_host(state: SchedulerState, host: HostName, now: Seconds) -> None:
    """Remember since when no rank of a worker host takes part."""
    alone = all(record.gone for record in state.cohort if record.host == host)
    if alone and host != state.local_host and host not in state.dropped_hosts:
        state.hosts_gone.setdefault(host, now)


def drop_host(state: SchedulerState, host: HostName, reason: str) -> None:
    """Give up a worker host whose link has not ended by itself."""
    state.hosts_gone.pop(host, None)
    if host not in state.dropped_hosts:
        state.dropped_hosts.add(host)
        state.out.append(DropHost(host, reason))


def _go_on_without(state: SchedulerState, record: RankRecord, now: Seconds) -> None:
    if state.stage is RunStage.LEAVING:
        return
    if record.rank == FIRST_RANK and state.committed_version is None and not state.ending:
        ending.give_up(
            state,
            "initial_broadcast_failed",
            f"{record.where} was lost before its parameters reached the others: {record.cause}",
        )
        return
    if not state.cohort.alive and not state.rendezvous.missing:
        _nobody_left(state, now)
        return
    _review_failures(state, now)
    if state.stage is RunStage.RENDEZVOUS:
        state.out.extend(state.rendezvous.review(now))
        return
    state.cycle.note_entry(now)
    reclaim(state, record, now)
    hand_over_duties(state, record, now)


def hand_over_duties(state: SchedulerState, record: RankRecord, now: Seconds) -> None:
    """Give the save or the evaluation that a rank was asked for to another one."""
    asked_rank_lost(state, record.rank, now)
    callbacks.rank_gone(state, record.rank, now)


def _nobody_left(state: SchedulerState, now: Seconds) -> None:
    if state.committed_version is None and not state.ending:
        detail = f"every rank was lost before the first commit; first cause: {state.first_cause}"
        ending.give_up(state, "all_ranks_lost", detail)
        return
    if not state.ending:
        count = len(state.cohort)
        ending.close_failed(
            state,
            SaveReason.ALL_RANKS_LOST,
            f"none of {count} ranks is left" if count > 1 else "the only rank was lost",
            now,
        )
    save = state.saves.current
    for rank in tuple(save.owed) if save is not None else ():
        asked_rank_lost(state, rank, now)


def _review_failures(state: SchedulerState, now: Seconds) -> None:
    limit, lost = state.settings.max_failure, state.cohort.lost
    if limit is not None and lost >= limit and not state.ending:
        why = f"{lost} ranks were lost and max_failure is {limit}"
        if state.committed_version is None:
            detail = f"{lost} ranks were lost; first cause: {state.first_cause}"
            ending.give_up(state, "max_failure_exceeded", detail)
        elif state.nccl is not None:
            nccl_cycle.stop_after_average(state, SaveReason.MAX_FAILURE_EXCEEDED, why, now)
        else:
            ending.close_failed(state, SaveReason.MAX_FAILURE_EXCEEDED, why, now)


def reclaim(state: SchedulerState, record: RankRecord, now: Seconds) -> None:
    """Take back the samples of a gone rank, but what a pending cycle may still count.

    They go to the others at once, or into the pool where windows are dealt from one.
    """
    survivors = state.cohort.alive_ranks
    if state.ending or not survivors:
        return
    parts = state.book.reclaim(record.rank, keep_samples=_limbo_samples(state, record))
    if parts and state.cadence is None:
        _give(state, parts, survivors, now)


def _limbo_samples(state: SchedulerState, record: RankRecord) -> int:
    """Samples that must stay with a gone rank until the params round has ended."""
    if not state.cycle.pending or state.cycle.params_ended:
        return 0
    ready = state.cycle.evidence(record.rank).ready
    return state.book.held_samples(record.rank) if ready is None else ready.samples


def _give(
    state: SchedulerState, parts: Sequence[Range], survivors: Sequence[Rank], now: Seconds
) -> None:
    assert state.book.open is not None
    epoch = state.book.open.span.event
    idle = [rank for rank in survivors if not state.may_step(rank)]
    for rank, part in state.book.give(parts, survivors):
        state.send(rank, ExtendPartition(epoch=epoch, offset=part.offset, size=part.size))
    state.mark_able(idle, now)
