"""One averaging, trigger to finish: what is sent, what is entered, what follows.

What it is: the transitions of the CPU cycle with their deeds. Samples are settled
when the params round has ended, before any rank knows; the cycle is over when every
alive rank acknowledged it, and then all are released together.
What it is not: the gate, and not the arithmetic of a reduce.
Who drives it: `coordinator.machine` on RoundEnded, `advance` after each event.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from flodl_core.coordinator import (
    callbacks,
    dead_ranks,
    drains,
    ending,
    nccl_cycle,
    windows,
)
from flodl_core.coordinator.cycle import CyclePhase
from flodl_core.coordinator.effects import RecordSamples, Severity
from flodl_core.coordinator.events import RoundEnded
from flodl_core.coordinator.save_steps import ask_for_save
from flodl_core.coordinator.saves import SavePurpose
from flodl_core.coordinator.state import BeforeCommit, RunStage, SchedulerState
from flodl_core.elche.guards import DivergenceReport
from flodl_core.elche.meta_controller import LearningRate
from flodl_core.elche.report import WindowReport
from flodl_core.ids import Cycle, Rank, Round, RoundOutcome, SaveReason
from flodl_core.messages.control import Cut
from flodl_core.messages.data import RankTally
from flodl_core.reduce.mass import gamma_mass
from flodl_core.units import Seconds

DECLARED_IN_A_ROW = 3
"""Declared cycles in a row that evict a rank, and barren ones that end the run."""


def trigger(state: SchedulerState, now: Seconds) -> None:
    """Begin the next cycle with every alive rank; those that run on get work for it."""
    state.send_alive(nccl_cycle.call_for(state, _arm(state, now)))
    windows.top_up(state)


def trigger_early(state: SchedulerState, reason: str, now: Seconds) -> None:
    """Begin the next cycle now, though not everybody has done its part; all run on."""
    state.disturb(f"early: {reason}")
    cycle = state.cycle.last_cycle + 1
    state.announce("window_cut", f"cycle {cycle} begins early: {reason}", cycle=cycle)
    trigger(state, now)


def cut(state: SchedulerState, reason: str, now: Seconds) -> None:
    """Begin the next cycle now: each rank brings what it has done, and its plan ends."""
    state.disturb(f"cut: {reason}")
    cycle = trigger_rest(state, now)
    state.announce("window_cut", f"the window is cut in cycle {cycle}: {reason}", cycle=cycle)


def trigger_rest(state: SchedulerState, now: Seconds) -> Cycle:
    """Begin the next cycle and end all plans with it, so that nobody trains on."""
    state.plans_ended = True
    cycle = _arm(state, now)
    state.send_alive(Cut(cycle=cycle))
    return cycle


def _arm(state: SchedulerState, now: Seconds) -> Cycle:
    cycle = state.cycle.trigger(now)
    nccl_cycle.begun(state)
    for record in state.cohort:
        record.ledger.arm()
    state.quiet_since = None
    if state.saves.current is not None:
        state.disturb("a save")
    return cycle


def end_round(state: SchedulerState, event: RoundEnded, now: Seconds) -> None:
    """Enter the end of a round; while the last save is written it is put aside."""
    if state.closing is not None and state.saves.writes_last:
        state.closing.late_rounds.append(event)
        return
    if event.outcome is RoundOutcome.FAILED and event.cycle == state.cycle.cycle:
        _round_failed(state, event, now)
        return
    if not state.cycle.end_round(event):
        state.note(
            "round_out_of_place", cycle=event.cycle, round=event.round, pending=state.cycle.cycle
        )
        return
    if state.cycle.phase is CyclePhase.ADOPTING:
        state.cycle.rounds_ended_at = now
    if event.cycle == 0 and _broadcast_is_broken(event):
        ending.give_up(
            state,
            "initial_broadcast_failed",
            f"the {event.round} of rank 0 did not reach the others as a whole: its host broke off, "
            "or its values are not finite",
        )
        return
    if event.round is Round.CONTROL and event.outcome is not RoundOutcome.COMMITTED:
        _settle(state, event.cycle, (), now)
        _count_declared(state, state.cycle.tallies, realized=False)
    elif event.round is Round.PARAMS:
        committed = event.outcome is RoundOutcome.COMMITTED
        state.before_commit = _stand(state) if committed else None
        if committed:
            _commit(state, event)
        _settle(state, event.cycle, event.ranks_accepted if committed else (), now)
        _count_declared(state, state.cycle.tallies, realized=committed)


def poll_nccl(state: SchedulerState, now: Seconds) -> bool:
    """Enter the rounds of a cycle that no root has seen, once all its ranks acknowledged it."""
    ended = nccl_cycle.poll_acks(state, now)
    for event in ended:
        end_round(state, event, now)
    return bool(ended)


def enter_late_rounds(state: SchedulerState, now: Seconds) -> bool:
    """Enter what was put aside, since the last save was not written after all."""
    closing = state.closing
    if closing is None or closing.begun or not closing.late_rounds:
        return False
    rounds, closing.late_rounds = closing.late_rounds, []
    for event in rounds:
        end_round(state, event, now)
    return True


def _broadcast_is_broken(event: RoundEnded) -> bool:
    """Whether the initial broadcast cannot be whole: there is nothing older to fall back on."""
    if event.round is Round.CONTROL:
        return event.outcome is not RoundOutcome.COMMITTED
    committed = event.outcome is RoundOutcome.COMMITTED
    return not committed or dead_ranks.FIRST_RANK not in event.ranks_accepted


def _round_failed(state: SchedulerState, event: RoundEnded, now: Seconds) -> None:
    detail = f"the {event.round} round of cycle {event.cycle} failed at the root"
    if state.committed_version is None:
        ending.give_up(state, "reduce_failed", detail)
    else:
        ending.close_failed(state, SaveReason.REDUCE_STALL, detail, now)


def _stand(state: SchedulerState) -> BeforeCommit:
    return BeforeCommit(
        version=state.committed_version,
        global_step=state.global_step,
        trained_samples=state.book.trained_samples,
        dropped_samples=state.book.dropped_samples,
    )


def _commit(state: SchedulerState, event: RoundEnded) -> None:
    """The consensus of this cycle is the committed one from now on."""
    if event.cycle == 0:
        state.committed_version = state.first_version
        return
    state.committed_version = event.cycle
    state.syncs += 1
    if event.unstepped_buckets:
        state.alert(
            Severity.WARN,
            "nonfinite",
            f"the outer step of {event.unstepped_buckets} buckets is not finite in cycle "
            f"{event.cycle}; their average is taken as it is and their velocity begins again at 0",
        )
    gamma = state.spec.gamma
    masses = {
        tally.rank: gamma_mass(tally.n, gamma)
        for tally in state.cycle.tallies
        if tally.rank in event.ranks_accepted
    }
    total = sum(masses.values())
    for record in state.cohort:
        known = record.alive and total > 0
        record.weight = masses.get(record.rank, 0.0) / total if known else None
    state.global_step += sum(
        tally.n for tally in state.cycle.tallies if tally.rank in event.ranks_accepted
    )


def _settle(state: SchedulerState, cycle: Cycle, accepted: Sequence[Rank], now: Seconds) -> None:
    """Enter what became of every sample in the cycle, then free the samples in limbo."""
    settlement = state.book.settle(cycle, state.cycle.tallies, accepted)
    trained: Counter[Rank] = Counter()
    for entry in settlement.entries:
        record = state.cohort[entry.rank]
        samples = sum(part.size for part in entry.ranges)
        if entry.reason:
            record.dropped_samples += samples
            state.announce(
                "samples_dropped",
                f"{samples} samples of {record.where} are dropped in cycle {cycle}: {entry.reason}",
                rank=entry.rank,
                samples=samples,
                reason=entry.reason,
            )
        else:
            record.trained_samples += samples
            trained[entry.rank] += samples
    state.rates.add(now, trained)
    if state.before_commit is not None:
        state.before_commit = replace(state.before_commit, entries=settlement.entries)
    if settlement.entries:
        state.out.append(RecordSamples(settlement.entries))
    for rank, samples, held in settlement.overdrawn:
        state.note("tally_exceeds_holding", rank=rank, samples=samples, held=held)
    for rank, samples in settlement.partly_counted:
        state.alert(
            Severity.WARN,
            "partly_counted",
            f"{samples} samples of {state.cohort[rank].where} may count twice: its host broke "
            f"off in the params round of cycle {cycle}",
            rank=rank,
        )
    for record in state.cohort:
        if record.gone and state.book.held_samples(record.rank):
            dead_ranks.reclaim(state, record, now)


def _count_declared(state: SchedulerState, tallies: Sequence[RankTally], *, realized: bool) -> None:
    """Count the ranks whose values were not finite, for eviction or for the end of the run."""
    declared = [tally for tally in tallies if tally.declared]
    for tally in declared:
        record = state.cohort[tally.rank]
        after = "it adopts the consensus" if realized else "nobody had finite values"
        state.alert(
            Severity.WARN,
            "nonfinite",
            f"the values of {record.where} are not finite in cycle {state.cycle.cycle}; {after}",
            rank=tally.rank,
        )
    if realized:
        state.barren_cycles = 0
        for tally in tallies:
            if tally.declared:
                state.cohort[tally.rank].declared_in_a_row += 1
            elif tally.n > 0:
                state.cohort[tally.rank].declared_in_a_row = 0
    elif declared:
        state.barren_cycles += 1


def poll_finish(state: SchedulerState, now: Seconds) -> bool:
    """Finish the cycle if every alive rank has acknowledged it."""
    cycle = state.cycle
    if cycle.phase is not CyclePhase.ADOPTING:
        return False
    alive = state.cohort.alive_ranks
    if not alive or not cycle.is_acknowledged(alive):
        return False
    if state.stage not in (RunStage.INITIAL, RunStage.TRAINING):
        return False
    number = cycle.cycle
    assert number is not None
    _report_window(state, now)
    cycle.finish(now)
    for record in state.cohort:
        record.ledger.finish()
    initial = state.stage is RunStage.INITIAL
    if initial:
        state.stage = RunStage.TRAINING
        state.saves.start_clock(now)
    _evict_declarers(state, now)
    if not state.ending:
        _release(state, number, now, initial=initial)
    return True


def _report_window(state: SchedulerState, now: Seconds) -> None:
    """Tell the balancer what the window took, and the judge how far the ranks were apart."""
    cadence, cycle, window = state.cadence, state.cycle, state.window
    if cadence is None or window is None or cycle.since is None:
        return
    rows = [record.ledger.closing_costs.window(record.rank) for record in state.cohort.alive]
    moved = {tally.rank: tally.n for tally in cycle.tallies if tally.n > 0}
    committed = cycle.realized
    rates = (LearningRate(one.rank, one.lr) for one in state.cohort.alive if one.lr is not None)
    alerts = cadence.close_window(
        WindowReport(
            rows=rows,
            sync_ms=(_averaged_at(state, now) - cycle.since) * 1000.0,
            longest_boundary_wait_ms=cycle.boundary_wait_ms,
            feeds_growth=not window.is_final and not window.disturbance,
        ),
        DivergenceReport(
            divergences={
                record.rank: record.divergence
                for record in state.cohort.alive
                if committed and record.divergence is not None
            },
            n_batches=moved,
        ),
        rate=next(rates, None),
    )
    for alert in alerts:
        state.alert(Severity.WARN, alert.alert_class, alert.detail)
    state.window = None


def _averaged_at(state: SchedulerState, now: Seconds) -> Seconds:
    """When the average was over for the ranks.

    Those that run on adopt at the end of the batch that they are in: that wait is no cost
    of the average.
    """
    ended = state.cycle.rounds_ended_at
    return ended if state.runs_on and ended is not None else now


def _evict_declarers(state: SchedulerState, now: Seconds) -> None:
    for record in state.cohort.alive:
        if record.declared_in_a_row >= DECLARED_IN_A_ROW:
            reason = f"its values were not finite in {DECLARED_IN_A_ROW} cycles in a row"
            dead_ranks.evict(state, record, reason, now)


def _release(state: SchedulerState, cycle: Cycle, now: Seconds, *, initial: bool) -> None:
    """End the run here if it is to end, else save if that is due and let the ranks go on.

    Where ranks run on, what needs them at rest waits for a cycle that was cut.
    """
    if state.barren_cycles >= DECLARED_IN_A_ROW:
        ending.close_failed(
            state,
            SaveReason.NON_FINITE,
            f"no rank had finite values in {DECLARED_IN_A_ROW} cycles in a row",
            now,
        )
        return
    at_rest = initial or state.plans_ended or not state.runs_on
    if state.stop is not None and at_rest:
        ending.close_for_stop(state, now)
        return
    if at_rest:
        drains.dismiss(state, now)
    if at_rest and state.saves.is_due(now):
        ask_for_save(state, SavePurpose.PERIODIC, SaveReason.CHECKPOINT, now)
    elif initial or (at_rest and state.saves.owes_prime):
        ask_for_save(state, SavePurpose.PRIME, SaveReason.CHECKPOINT, now)
    callbacks.ask_owed(state, now)
    windows.release(state, cycle, now)
