"""What each rank is told to do next: the plans of an event, of a window, of a remainder.

What it is: the deals and their messages. In Sync an event is shared out at once and a
window is one batch. In Cadence each window is dealt from the event's pool, a chunk of
exactly the rank's count, in the message that ends the window before. In Async a rank is
never without work: when an average begins and when it ends, what it holds is filled up to
its count and the overshoot. Near the end of an event, where some hold more than their
part of what is left, all give back what they have not begun and it is shared out anew.
What it is not: the books, the counts or the gate.
Who drives it: `coordinator.advance` begins events, `coordinator.averaging` releases ranks.

    StartEpoch(plan), ExtendPartition …                         a new event, or after a rest
    RequestParams, ExtendPartition …                            Async: when an average begins
    Update(next_plan), ExtendPartition …, SetGlobalStep         after an average

A rank released by an Update waits for the SetGlobalStep behind it, so that all of its
plan is here before its first batch.
"""

from collections.abc import Sequence

from flodl_core.coordinator import callbacks, cuts
from flodl_core.coordinator.aggregation import EpochTotals
from flodl_core.coordinator.cadence import Cadence, Slots
from flodl_core.coordinator.facts import OpenTotals
from flodl_core.coordinator.state import SYNC_WINDOW_BATCHES, SchedulerState, Window
from flodl_core.dispatch.ranges import Range
from flodl_core.ids import Cycle, Rank
from flodl_core.messages.control import (
    EpochPlan,
    ExtendPartition,
    SetGlobalStep,
    StartEpoch,
    Update,
)
from flodl_core.units import Seconds


def begin_event(state: SchedulerState, now: Seconds) -> None:
    """Open the next event and start every alive rank on it."""
    ranks = state.cohort.alive_ranks
    cycle = state.cycle.last_cycle + 1
    cadence = state.cadence
    if cadence is None:
        span, plans = state.book.begin(ranks, now, cycle=cycle)
        for rank, parts in plans.items():
            state.cohort[rank].planned_batches = SYNC_WINDOW_BATCHES
            state.send(rank, StartEpoch(plan=parts[0]))
            _extend(state, rank, parts)
    else:
        span = state.book.begin_pool(now, cycle=cycle)
        cadence.open_event(span.whole.size // state.spec.batch_size)
        state.book.reserve(cadence.counts)
        _start_window(state, cadence, now)
    state.totals = EpochTotals(span.event, _reported_before(state, span.event))
    state.release(ranks, now)
    if span.tail.size:
        state.announce(
            "tail_dropped",
            f"epoch {span.label}: the last {span.tail.size} samples are less than a batch of "
            f"{state.spec.batch_size} and are left out",
            epoch=span.event,
            samples=span.tail.size,
        )
    idle = [rank for rank in ranks if not state.book.held_samples(rank)]
    if span.whole.size // state.spec.batch_size < len(ranks):
        names = ", ".join(map(str, idle))
        state.announce(
            "ranks_idle",
            f"epoch {span.label}: {len(ranks)} ranks share fewer batches; idle: {names}",
            epoch=span.event,
        )


def _reported_before(state: SchedulerState, event: int) -> OpenTotals:
    """What was reported of an event before the run was resumed in it."""
    resume = state.resume
    if resume is None or resume.open_totals is None or resume.epoch != event:
        return OpenTotals()
    return resume.open_totals


def release(state: SchedulerState, cycle: Cycle, now: Seconds) -> None:
    """Let every alive rank go on after the average of that cycle."""
    assert state.committed_version is not None
    ranks = state.cohort.alive_ranks
    goes_on = state.runs_on and not state.plans_ended
    plans = {} if goes_on else _deal_window(state, ranks, now)
    further = _deal_further(state, now) if goes_on else {}
    state.plans_ended = False
    for rank in ranks:
        parts = plans.get(rank, ())
        state.send(
            rank,
            Update(
                version=state.committed_version,
                cycle=cycle,
                next_plan=parts[0] if parts else None,
            ),
        )
        _extend(state, rank, parts)
        _extend_by(state, rank, further.get(rank, ()))
        _tell_step(state, rank)
    if goes_on:
        state.go_on(ranks, now)
    else:
        state.release(ranks, now)


def top_up(state: SchedulerState) -> None:
    """Give ranks that run on what they may do while an average is under way.

    They were asked for a snapshot before, so that none of it is in this average.
    """
    cadence = state.cadence
    if cadence is None or not state.runs_on or state.book.open is None:
        return
    held = _held_batches(state, cadence)
    slots = cadence.slots(state.book.pooled_batches + sum(held.values()))
    for rank, batches in slots.batches.items():
        _extend_by(state, rank, state.book.draw(rank, max(0, batches - held[rank])))


def must_share_anew(state: SchedulerState) -> bool:
    """Whether an average should end all plans: somebody has too much of what is left."""
    cadence = state.cadence
    if cadence is None or not state.runs_on or state.book.open is None:
        return False
    held = _held_batches(state, cadence)
    slots = cadence.slots(state.book.pooled_batches + sum(held.values()))
    return slots.is_final and any(held[rank] > slots.batches[rank] for rank in held)


def _held_batches(state: SchedulerState, cadence: Cadence) -> dict[Rank, int]:
    """Return the batches that each alive rank has not reported."""
    return {
        rank: _batches(state, state.unreported_samples(rank)) for rank in cadence.balancer.counts
    }


def wake(state: SchedulerState, now: Seconds) -> bool:
    """Deal a window to ranks that all rest, although the pool has something again."""
    cadence = state.cadence
    if cadence is None or not state.book.pooled_batches or not state.cohort.alive:
        return False
    _start_window(state, cadence, now)
    state.release(state.cohort.alive_ranks, now)
    return True


def _start_window(state: SchedulerState, cadence: Cadence, now: Seconds) -> None:
    slots = _open_window(state, cadence, now)
    for rank, batches in slots.batches.items():
        parts = _compose(state, state.book.draw(rank, batches), batches, cohort=slots.total)
        state.send(rank, StartEpoch(plan=parts[0]))
        _extend(state, rank, parts)
        if state.runs_on:
            _tell_step(state, rank)


def _deal_window(
    state: SchedulerState, ranks: Sequence[Rank], now: Seconds
) -> dict[Rank, list[EpochPlan]]:
    """Take back what no rank has worked, then deal the next window of the event.

    Returns:
        The plans of each rank whose plan changes; empty in Sync, where each has its part
        from the beginning.
    """
    cadence = state.cadence
    if cadence is None or state.book.open is None:
        return {}
    unworked = {rank for rank in reversed(ranks) if state.book.reclaim(rank)}
    slots = _open_window(state, cadence, now)
    plans = {}
    for rank, batches in slots.batches.items():
        drawn = state.book.draw(rank, batches)
        if drawn or rank in unworked:
            plans[rank] = _compose(state, drawn, batches, cohort=slots.total)
    return plans


def _deal_further(state: SchedulerState, now: Seconds) -> dict[Rank, list[Range]]:
    """Fill up what each rank holds, whose snapshot was averaged while it trained on."""
    cadence = state.cadence
    if cadence is None or state.book.open is None:
        return {}
    held = {
        rank: _batches(state, state.book.held_samples(rank)) for rank in cadence.balancer.counts
    }
    slots = _open_window(state, cadence, now, held_batches=sum(held.values()))
    further = {}
    for rank, batches in slots.batches.items():
        further[rank] = state.book.draw(rank, max(0, batches - held[rank]))
        if slots.is_final:
            held_now = _batches(state, state.book.held_samples(rank))
            state.cohort[rank].planned_batches = held_now
    return further


def _batches(state: SchedulerState, samples: int) -> int:
    return -(-samples // state.spec.batch_size)


def _open_window(
    state: SchedulerState, cadence: Cadence, now: Seconds, *, held_batches: int = 0
) -> Slots:
    """Plan a window of what is in the pool and what ranks hold already."""
    slack = callbacks.slack_ms(state)
    slots = cadence.slots(state.book.pooled_batches + held_batches, slack_ms=slack)
    for rank, batches in slots.planned.items():
        state.cohort[rank].planned_batches = batches
    state.window = Window(
        began_at=now,
        planned_ms=cadence.planned_ms(slots, slack_ms=slack),
        is_final=slots.is_final,
        disturbance="a save" if state.saves.current is not None else "",
    )
    if state.evaluation is not None:
        state.disturb("a callback")
    state.window.look_at = cuts.first_look(state.window, cadence)
    return slots


def _compose(
    state: SchedulerState, parts: Sequence[Range], window_batches: int, *, cohort: int
) -> list[EpochPlan]:
    """Return one plan a range, the first of which begins the rank's work; at least one."""
    assert state.book.open is not None
    event = state.book.open.span.event
    return [
        EpochPlan(
            epoch=event,
            offset=part.offset,
            size=part.size,
            window_batches=0 if state.runs_on else max(1, window_batches),
            cohort_batches=cohort,
        )
        for part in parts or (Range(0, 0),)
    ]


def _extend(state: SchedulerState, rank: Rank, parts: Sequence[EpochPlan]) -> None:
    """Tell a rank of all ranges but the first, which its plan holds."""
    for part in parts[1:]:
        state.send(rank, ExtendPartition(epoch=part.epoch, offset=part.offset, size=part.size))


def _extend_by(state: SchedulerState, rank: Rank, parts: Sequence[Range]) -> None:
    """Append these ranges to what a rank has."""
    if state.book.open is None:
        return
    event = state.book.open.span.event
    for part in parts:
        state.send(rank, ExtendPartition(epoch=event, offset=part.offset, size=part.size))


def _tell_step(state: SchedulerState, rank: Rank) -> None:
    """Tell a rank the committed step; one whose plan has no window also how fast it advances."""
    own = cohort = 0
    if state.runs_on and state.book.open is not None:
        own = state.cohort[rank].planned_batches
        cohort = sum(record.planned_batches for record in state.cohort.alive)
    state.send(rank, SetGlobalStep(n=state.global_step, own_batches=own, cohort_batches=cohort))
