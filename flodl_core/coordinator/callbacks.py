"""Evaluations: who is asked and when, what becomes of the answer, and of a rank that fails.

What it is: the deeds around `ExecuteEval`. In Cadence the next event begins at once: the
rank that was asked evaluates before its first batch, is dealt so many batches fewer, and
its callback is in no timing. In Sync, and after the last event, everybody waits.
What it is not: the evaluation; the rank scores the consensus that it has just adopted.
Who drives it: `coordinator.advance` after an event, `inbox` on the answer, `dead_ranks`
when the rank is lost, `averaging` at the average that makes up for one.

    after an event ──▶ ExecuteEval ──▶ EvalResult ──▶ kept with its epoch
                            │ lost, or it raised
                            ├─ others wait: the next rank is asked at once
                            └─ others train: at the next average
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from flodl_core.coordinator.callback_desk import MOST_TRIES, EvalWait
from flodl_core.coordinator.cohort import RankRecord
from flodl_core.coordinator.effects import Severity
from flodl_core.coordinator.state import RunStage, SchedulerState
from flodl_core.elche.callback_cost import worth_slack
from flodl_core.ids import Rank
from flodl_core.messages.control import ExecuteEval
from flodl_core.messages.timing import EvalResult
from flodl_core.units import Milliseconds, Seconds


def begin_eval(state: SchedulerState, epoch: int, now: Seconds) -> None:
    """Have the consensus evaluated after an event, if that is due."""
    desk = state.callbacks
    due = desk.settings.is_due(epoch, state.book.events)
    if not due or not state.has_eval or state.stop is not None:
        return
    _give_up_owed(state)
    is_beside = state.cadence is not None and state.book.has_next
    if not is_beside:
        state.stage = RunStage.EVALUATING
    _ask(state, EvalWait(epoch, epoch, Rank(0), now, is_beside), now)


def ask_owed(state: SchedulerState, now: Seconds) -> None:
    """Make up for an evaluation at an average after which the event goes on."""
    owed = state.callbacks.owed
    if owed is not None and state.evaluation is None and state.book.pooled_batches:
        state.callbacks.owed = None
        _ask(state, replace(owed, tries=owed.tries + 1), now)


def take_result(
    state: SchedulerState, record: RankRecord, message: EvalResult, now: Seconds
) -> None:
    """A rank has evaluated, well or not."""
    wait = state.evaluation
    asked = wait is not None and wait.target == record.rank
    if wait is None or not asked or wait.schedule_id != message.schedule_id:
        state.note("eval_out_of_place", rank=record.rank, schedule_id=message.schedule_id)
        return
    state.evaluation = None
    state.callbacks.costs.push(record.rank, message.elapsed_ms)
    if wait.is_beside:
        record.spaced_from = record.progress_at = now
    if message.error is not None:
        detail = f"{record.where} could not evaluate epoch {message.epoch + 1}: {message.error}"
        state.alert(Severity.WARN, "eval_failed", detail, rank=record.rank)
        state.callbacks.fail(record.rank)
        can_ask = state.callbacks.is_left(state.cohort.alive_ranks) and wait.tries < MOST_TRIES
        if can_ask:
            _ask_another(state, wait, now)
            return
    if not wait.is_beside:
        state.stage = RunStage.TRAINING
    _keep(state, message)


def rank_gone(state: SchedulerState, rank: Rank, now: Seconds) -> None:
    """A rank takes no further part: what it was asked for is asked of another."""
    wait = state.evaluation
    if wait is None or wait.target != rank or state.ending:
        return
    state.evaluation = None
    _ask_another(state, wait, now)


def slack_ms(state: SchedulerState) -> Mapping[Rank, Milliseconds]:
    """Return the time that a rank at a callback will lack in the window that is dealt now."""
    wait, cadence = state.evaluation, state.cadence
    if wait is None or cadence is None or not wait.is_beside:
        return {}
    cost = state.callbacks.costs.cost_ms(wait.target)
    wall = cadence.anchor_wall_ms
    if cost is None or wall is None or not worth_slack(cost, wall):
        return {}
    return {wait.target: cost}


def _ask(state: SchedulerState, wait: EvalWait, now: Seconds) -> None:
    if state.cadence is not None:
        speeds = dict(state.cadence.balancer.ms_per_batch)
    else:
        known = ((record.rank, record.mean_batch_ms) for record in state.cohort.alive)
        speeds = {rank: mean for rank, mean in known if mean is not None}
    target = state.callbacks.elect(state.cohort.alive_ranks, speeds)
    state.evaluation = replace(wait, target=target, since=now)
    state.send(
        target, ExecuteEval(schedule_id=wait.schedule_id, epoch=wait.epoch, target_rank=target)
    )


def _ask_another(state: SchedulerState, wait: EvalWait, now: Seconds) -> None:
    if wait.is_beside:
        state.callbacks.owed = wait
    else:
        _ask(state, replace(wait, tries=wait.tries + 1), now)


def _give_up_owed(state: SchedulerState) -> None:
    owed, state.callbacks.owed = state.callbacks.owed, None
    if owed is not None:
        state.note("eval_given_up", epoch=owed.epoch)


def _keep(state: SchedulerState, message: EvalResult) -> None:
    index = next(
        (number for number, one in enumerate(state.epochs) if one.epoch == message.epoch), None
    )
    if index is None:
        state.note("eval_of_a_forgotten_epoch", epoch=message.epoch)
        return
    facts, metric = state.epochs[index], message.metric
    finite = metric is not None and math.isfinite(metric)
    state.epochs[index] = replace(
        facts,
        metric=metric if finite else None,
        metric_name=message.metric_name,
        report=message.report,
    )
    value = f"{metric:.6g}" if metric is not None else "none"
    state.announce(
        "evaluated", f"epoch {facts.label}: {message.metric_name} {value}", epoch=facts.epoch
    )
