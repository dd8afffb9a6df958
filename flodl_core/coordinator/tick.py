"""What time alone brings about: beacon, silence, ceilings; and when it is due.

What it is: the deeds of a Tick in their order (beacon, dead ranks, progress, the
ceilings of whatever the run waits for), and the next instant at which one is due.
What it is not: a timer; the launcher sleeps until `deadline`.
Who drives it: `coordinator.machine`.
"""

from collections.abc import Iterable

from flodl_core.coordinator import cuts, dead_ranks, ending, nccl_cycle
from flodl_core.coordinator.callback_desk import EvalWait
from flodl_core.coordinator.ceiling import Ceiling, earliest
from flodl_core.coordinator.effects import DumpRankStack
from flodl_core.coordinator.liveness import (
    is_burning,
    progress_limit,
    review_silence,
    silence_due,
)
from flodl_core.coordinator.save_steps import give_up_asking
from flodl_core.coordinator.saves import SavePhase
from flodl_core.coordinator.state import RunStage, SchedulerState, StopOrder
from flodl_core.ids import Rank, RankPhase, SaveReason
from flodl_core.messages.control import CoordHeartbeat
from flodl_core.units import Seconds

_LATE_BEACONS = 5
_MOST_STACKS = 8
"""Ranks that are asked where they are when a ceiling ends the run."""


def tick(state: SchedulerState, now: Seconds) -> None:
    """Do what is due at `now`."""
    _beacon(state, now)
    if not state.ending and state.stage is not RunStage.RENDEZVOUS:
        _bury_the_silent(state, now)
        _evict_the_stuck(state, now)
    elif state.stage in (RunStage.RENDEZVOUS, RunStage.CLOSING):
        _bury_the_silent(state, now)
    cuts.review_late(state, now)
    _review_ceilings(state, now)
    state.next_check = _next_rank_check(state, now)


def _beacon(state: SchedulerState, now: Seconds) -> None:
    if state.next_beacon is None or now >= state.next_beacon:
        state.next_beacon = now + state.spec.heartbeat_interval_s
        state.send_alive(CoordHeartbeat())


def _bury_the_silent(state: SchedulerState, now: Seconds) -> None:
    for silence in review_silence(state.cohort.alive, state.spec, state.settings, now):
        record = state.cohort[silence.rank]
        dead_ranks.bury(state, record, silence.cause, now)
        if state.ended:
            return
        if silence.host_down and record.host in state.hosts_gone:
            dead_ranks.drop_host(state, record.host, "all its ranks fell silent together")
    _drop_hanging_hosts(state, now)
    for rank, reason in nccl_cycle.overdue(state, now):
        dead_ranks.evict(state, state.cohort[rank], reason, now)
    for record in state.cohort.alive:
        if record.heard_at is not None and is_burning(record, now):
            late = now > record.heard_at + _LATE_BEACONS * state.spec.heartbeat_interval_s
            if late:
                record.phase = RankPhase.BUSY


def _drop_hanging_hosts(state: SchedulerState, now: Seconds) -> None:
    """A cycle waits for the link of a host without ranks: it ends by itself, or it hangs."""
    if not state.cycle.pending:
        return
    for host, since in list(state.hosts_gone.items()):
        limit = state.settings.host_drain_s
        if Ceiling(since, limit).passed(now):
            reason = f"all its ranks are gone and its link has not ended in {limit:g} s"
            dead_ranks.drop_host(state, host, reason)


def _evict_the_stuck(state: SchedulerState, now: Seconds) -> None:
    for record in state.cohort.alive:
        ceiling = progress_ceiling(state, record.rank)
        if ceiling is not None and ceiling.passed(now) and record.alive:
            held = state.unreported_samples(record.rank)
            reason = (
                f"it holds {held} samples and finished no batch for {ceiling.age(now):.0f} s "
                f"(ceiling {ceiling.limit_s:g} s, phase {record.phase.value})"
            )
            dead_ranks.evict(state, record, reason, now)


def progress_ceiling(state: SchedulerState, rank: Rank) -> Ceiling | None:
    """The wait for this rank's next batch; None if it owes none.

    A batch that keeps a cycle waiting is owed still. A rank that writes its part of a save
    owes that first, under the save's own ceiling.
    """
    record, save = state.cohort[rank], state.saves.current
    if record.progress_at is None or not record.alive:
        return None
    if not state.may_step(rank) and not state.keeps_cycle_waiting(rank):
        return None
    if save is not None and rank in save.owed:
        return None
    return Ceiling(record.progress_at, progress_limit(record, state.spec, state.settings))


def stage_ceiling(state: SchedulerState) -> Ceiling | None:
    """What the run as a whole waits for; None if only ranks work.

    A cycle is waited for from when the last of its ranks has come to it: until then each
    batch has its own ceiling. An evaluation has its own, also beside a cycle. A save is
    looked at apart, since it runs beside training.
    """
    if state.ending:
        return None
    if state.stage is RunStage.RENDEZVOUS:
        return state.rendezvous.ceiling
    since = earliest(_evaluating_since(state), averaging_since(state))
    if since is None and state.evaluation is None and not state.cycle.pending:
        since = state.quiet_since
    return state.ceiling(since) if since is not None else None


def awaited_evaluation(state: SchedulerState) -> EvalWait | None:
    """The evaluation that `stage_ceiling` is of; None if it is of something else."""
    since, averaged = _evaluating_since(state), averaging_since(state)
    is_first = since is not None and (averaged is None or since <= averaged)
    return state.evaluation if is_first else None


def _evaluating_since(state: SchedulerState) -> Seconds | None:
    """Since when a rank evaluates; one that writes its part of a save does that first."""
    wait, save = state.evaluation, state.saves.current
    if wait is None or (save is not None and wait.target in save.owed):
        return None
    return wait.since


def averaging_since(state: SchedulerState) -> Seconds | None:
    """Since when all ranks of a cycle have been in it."""
    if any(map(state.keeps_cycle_waiting, state.cohort.alive_ranks)):
        return None
    return state.cycle.entered_at


def stage_words(state: SchedulerState) -> str:
    """What `stage_ceiling` is about."""
    if state.stage is RunStage.RENDEZVOUS:
        return state.rendezvous.describe_missing()
    if (wait := awaited_evaluation(state)) is not None:
        return f"rank {wait.target} evaluates epoch {wait.epoch + 1}"
    if state.cycle.pending:
        missing = ", ".join(map(str, state.cycle.missing(state.cohort.alive_ranks))) or "none"
        phase = state.cycle.phase.value
        where = "".join(
            f"; rank {rank} is in {state.cohort[rank].activity}"
            for rank in state.cycle.missing(state.cohort.alive_ranks)
            if state.cohort[rank].activity
        )
        return f"cycle {state.cycle.cycle} is {phase}; not acknowledged by ranks: {missing}{where}"
    return _word_quiet(state)


def _word_quiet(state: SchedulerState) -> str:
    reason = state.verdict.reason if state.verdict else ""
    if state.totals is not None and state.book.settled:
        missing = state.totals.missing(state.cohort.alive_ranks, state.book.attributed_samples)
        if missing:
            return f"the epoch's metrics of ranks {', '.join(map(str, missing))} are incomplete"
    return f"no rank may step: {reason}"


def _review_ceilings(state: SchedulerState, now: Seconds) -> None:
    if state.stage is RunStage.ENDED:
        return
    if state.stage is RunStage.LEAVING:
        _review_leaving(state, now)
        return
    stop = state.stop
    if stop is not None and stop.is_asked and _grace(state, stop).passed(now):
        ending.saved_by_now(state, now)
    waiting = stage_ceiling(state)
    if waiting is not None and waiting.passed(now):
        _wait_is_over(state, waiting, now)
    save = state.saves.ceiling
    if save is not None and save.passed(now) and not state.ended:
        _save_is_over(state, save, now)


def _review_leaving(state: SchedulerState, now: Seconds) -> None:
    assert state.leaving_since is not None
    if Ceiling(state.leaving_since, state.settings.leave_timeout_s).passed(now):
        ending.leave_behind(state)


def _wait_is_over(state: SchedulerState, ceiling: Ceiling, now: Seconds) -> None:
    detail = f"{stage_words(state)}, for {ceiling.age(now):.0f} s (ceiling {ceiling.limit_s:g} s)"
    if state.stage is RunStage.RENDEZVOUS:
        ending.give_up(state, "rendezvous_failed", detail)
    elif state.committed_version is None:
        ending.give_up(state, "initial_broadcast_failed", detail)
    else:
        _ask_for_stacks(state, _waited_for(state))
        ending.close_failed(state, SaveReason.REDUCE_STALL, detail, now)


def _waited_for(state: SchedulerState) -> tuple[Rank, ...]:
    """The ranks that the run as a whole waits for."""
    if (wait := awaited_evaluation(state)) is not None:
        return (wait.target,)
    if state.cycle.pending:
        return state.cycle.missing(state.cohort.alive_ranks)
    if state.totals is not None and state.book.settled:
        return state.totals.missing(state.cohort.alive_ranks, state.book.attributed_samples)
    return ()


def _ask_for_stacks(state: SchedulerState, ranks: Iterable[Rank]) -> None:
    """Have ranks say where they are, before anything is done to them."""
    for rank in sorted(ranks)[:_MOST_STACKS]:
        state.out.append(DumpRankStack(rank))


def _save_is_over(state: SchedulerState, ceiling: Ceiling, now: Seconds) -> None:
    """A save that hangs ends the run; one that hangs in the end ends it without a bundle."""
    save = state.saves.current
    assert save is not None
    what = f"the save of version {save.version} has not ended in {ceiling.limit_s:g} s"
    asking = state.saves.phase is SavePhase.ASKING
    _ask_for_stacks(state, save.owed)
    if not state.ending:
        ending.close_failed(state, SaveReason.REDUCE_STALL, what, now)
    closing = state.closing
    if closing is None or state.stage is not RunStage.CLOSING:
        return
    closing.begun = True
    if asking:
        give_up_asking(state, closing.save_reason, now)
    else:
        state.saves.rest()
        closing.save_error = what
        ending.leave(state, now)


def _next_rank_check(state: SchedulerState, now: Seconds) -> Seconds | None:
    if state.stage in (RunStage.LEAVING, RunStage.ENDED):
        return None
    instants: list[Seconds | None] = []
    for record in state.cohort.alive:
        instants.append(silence_due(record, state.spec, state.settings, now))
        ceiling = progress_ceiling(state, record.rank)
        instants.append(ceiling.due() if ceiling else None)
    return earliest(*instants)


def deadline(state: SchedulerState) -> Seconds | None:
    """When the next Tick is due; None before the first event and after the end."""
    if state.stage is RunStage.ENDED or state.started_at is None:
        return None
    instants = [state.next_beacon, state.next_check]
    if state.stage is RunStage.LEAVING:
        assert state.leaving_since is not None
        limit = state.settings.leave_timeout_s
        instants.append(Ceiling(state.leaving_since, limit).due())
        return earliest(*instants)
    waiting = stage_ceiling(state)
    instants.append(waiting.due() if waiting else None)
    save = state.saves.ceiling
    instants.append(save.due() if save else None)
    held = ending.save_hold(state)
    instants.append(held.due() if held else None)
    instants.append(state.window.look_at if state.window else None)
    instants.append(state.nccl.due() if state.nccl and not state.ending else None)
    stop = state.stop
    if stop is not None and stop.is_asked and _grace_matters(state):
        instants.append(_grace(state, stop).due())
    return earliest(*instants)


def _grace(state: SchedulerState, stop: StopOrder) -> Ceiling:
    """How long somebody who asked for a stop waits for its save."""
    return Ceiling(stop.since, state.settings.stop_grace_s)


def _grace_matters(state: SchedulerState) -> bool:
    asking = state.saves.phase is SavePhase.ASKING
    return not state.ending or (state.stage is RunStage.CLOSING and asking)
