"""What follows from what is known: finish, trigger, aggregate, begin, end.

What it is: the fixed point after each event. Each step looks at the state, does at
most one thing and says whether it did; they are tried in the order of a tick.
What it is not: an event handler.
Who drives it: `coordinator.machine` after every event.
"""

from collections.abc import Callable

from flodl_core.coordinator import (
    averaging,
    callbacks,
    cuts,
    drains,
    ending,
    nccl_cycle,
    resuming,
    windows,
)
from flodl_core.coordinator.facts import EpochFacts
from flodl_core.coordinator.gate import GateVerdict, review_gate
from flodl_core.coordinator.rendezvous import RendezvousPhase
from flodl_core.coordinator.save_steps import ask_for_save
from flodl_core.coordinator.saves import SavePurpose
from flodl_core.coordinator.state import RunStage, SchedulerState
from flodl_core.ids import SaveReason
from flodl_core.messages.control import EpochAggregated, Throttle
from flodl_core.units import Seconds

_MOST_STEPS = 64

Step = Callable[[SchedulerState, Seconds], bool]


def settle(state: SchedulerState, now: Seconds) -> None:
    """Do everything that the state allows."""
    for _ in range(_MOST_STEPS):
        if state.stage is RunStage.ENDED:
            return
        if not any(step(state, now) for step in STEPS):
            return
    raise AssertionError(f"the coordinator does not come to rest in stage {state.stage}")


def _poll_rendezvous(state: SchedulerState, now: Seconds) -> bool:
    done = state.rendezvous.phase is RendezvousPhase.DONE
    if state.stage is not RunStage.RENDEZVOUS or not done:
        return False
    state.stage = RunStage.INITIAL
    resuming.give_locals(state)
    averaging.trigger(state, now)
    return True


def review(state: SchedulerState) -> GateVerdict:
    """The gate's verdict now."""
    if state.cycle.pending:
        return GateVerdict(open=False, reason=f"cycle {state.cycle.cycle} is pending")
    before = state.verdict.blocker if state.verdict else None
    return review_gate(
        state.cohort.alive,
        hold=state.hold_reason,
        is_quiesced=state.is_quiesced,
        suspect=state.cohort[before] if before is not None else None,
    )


def _poll_throttle(state: SchedulerState, _now: Seconds) -> bool:
    """Hold ranks that ran past a count that shrank in the middle of their window."""
    if state.window is None or not (state.window.shrunk or state.runs_on):
        return False
    held = cuts.throttle(state, state.cohort.alive)
    for record in held:
        record.throttled = True
        state.send(record.rank, Throttle())
    return bool(held)


def _poll_gate(state: SchedulerState, now: Seconds) -> bool:
    if state.stage is not RunStage.TRAINING or state.book.open is None:
        state.verdict = None
        state.quiet_since = None
        return False
    state.verdict = verdict = review(state)
    if verdict.open:
        _trigger(state, now)
        return True
    if state.cycle.pending or verdict.blocker is not None:
        state.quiet_since = None
        return _poll_cut(state, now)
    may_wake = state.stop is None and not state.draining and not _somebody_stepped(state)
    if may_wake and windows.wake(state, now):
        state.quiet_since = None
        return True
    if state.quiet_since is None:
        state.quiet_since = now
    return False


def _trigger(state: SchedulerState, now: Seconds) -> None:
    """Begin the cycle that the gate opened for; of ranks that run on some must come to rest."""
    if state.runs_on and _poll_cut(state, now):
        return
    if windows.must_share_anew(state):
        averaging.trigger_rest(state, now)
    else:
        averaging.trigger(state, now)


def _poll_cut(state: SchedulerState, now: Seconds) -> bool:
    """Cut the window if somebody wants that: the gate does not wait for the others."""
    if state.cycle.pending or state.hold_reason:
        return False
    if reason := cuts.wanted(state, now):
        averaging.cut(state, reason, now)
        return True
    if not state.runs_on or not (reason := cuts.late(state)):
        return False
    if windows.must_share_anew(state):
        averaging.cut(state, reason, now)
    else:
        averaging.trigger_early(state, reason, now)
    return True


def _somebody_stepped(state: SchedulerState) -> bool:
    return any(record.ledger.open_batches for record in state.cohort.alive)


def _poll_aggregate(state: SchedulerState, now: Seconds) -> bool:
    """Close the epoch when its samples are settled and its reports are complete."""
    book, totals = state.book, state.totals
    if state.quiet_since is None or totals is None or book.open is None or not book.settled:
        return False
    if totals.missing(state.cohort.alive_ranks, book.attributed_samples):
        return False
    span = book.open.span
    dropped = book.dropped_of_open()
    facts = EpochFacts(
        epoch=span.event,
        pass_index=span.pass_index,
        label=span.label,
        loss=totals.loss,
        samples=span.whole.size - dropped,
        dropped=dropped,
        duration_s=totals.duration_s(now - book.open.opened_at),
        syncs=state.cycle.last_cycle + 1 - book.open.first_cycle,
        scalars=totals.scalars,
    )
    state.epochs.append(facts)
    book.close()
    state.totals = None
    state.quiet_since = None
    loss = f"loss {facts.loss:.6g}" if facts.loss is not None else "no loss"
    means = "".join(f", {name} {mean:.6g}" for name, mean in facts.scalars.items())
    state.announce(
        "epoch_aggregated",
        f"epoch {facts.label}: {loss}{means}, {facts.samples} samples trained, {dropped} dropped",
        epoch=facts.epoch,
        loss=facts.loss,
        samples=facts.samples,
    )
    state.send_alive(EpochAggregated(epoch=facts.epoch, loss=facts.loss, samples=facts.samples))
    _save_after(state, facts.epoch, now)
    callbacks.begin_eval(state, facts.epoch, now)
    return True


def _save_after(state: SchedulerState, epoch: int, now: Seconds) -> None:
    """Make the save that is due after so many passes; the last pass has the last save."""
    every = state.settings.checkpoint_every_epochs
    passes, rest = divmod(epoch + 1, state.spec.epoch_splits)
    if every is None or rest or passes % every or not state.book.has_next:
        return
    if state.stop is not None:
        return
    state.saves.owe_epoch()
    if state.saves.is_due(now):
        ask_for_save(state, SavePurpose.PERIODIC, SaveReason.CHECKPOINT, now)


def _poll_stop(state: SchedulerState, now: Seconds) -> bool:
    """A stop need not wait where no window is under way."""
    if state.stop is None or state.ending:
        return False
    if state.stage is RunStage.EVALUATING:
        ending.close_for_stop(state, now)
        return True
    if state.stage is not RunStage.TRAINING or state.cycle.pending:
        return False
    quiet = _at_rest(state)
    if quiet:
        ending.close_for_stop(state, now)
    return quiet


def _poll_drain(state: SchedulerState, now: Seconds) -> bool:
    """A drain need not wait where no window is under way."""
    if state.stage is not RunStage.TRAINING or state.cycle.pending or not _at_rest(state):
        return False
    return drains.dismiss(state, now)


def _at_rest(state: SchedulerState) -> bool:
    quiet = state.quiet_since is not None and not _somebody_stepped(state)
    return state.book.open is None or quiet


def _poll_next(state: SchedulerState, now: Seconds) -> bool:
    """Begin the next event, or end the run after the last one."""
    if state.stage is not RunStage.TRAINING or state.book.open is not None or state.cycle.pending:
        return False
    if not state.book.has_next:
        ending.close_done(state, now)
        return True
    if not state.cohort.alive:
        return False
    windows.begin_event(state, now)
    return True


def _poll_leaving(state: SchedulerState, _now: Seconds) -> bool:
    return ending.poll_leaving(state)


STEPS: tuple[Step, ...] = (
    _poll_rendezvous,
    _poll_throttle,
    nccl_cycle.poll_members,
    nccl_cycle.poll_session,
    averaging.poll_nccl,
    averaging.poll_finish,
    _poll_gate,
    _poll_stop,
    _poll_drain,
    _poll_aggregate,
    _poll_next,
    averaging.enter_late_rounds,
    ending.poll_closing,
    _poll_leaving,
)
