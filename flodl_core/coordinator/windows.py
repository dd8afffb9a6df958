"""What each rank is told to do next: the plans of an event, of a window, of a remainder.

What it is: the deals and their messages. In Sync an event is shared out at once and a
window is one batch. In Cadence each window is dealt from the event's pool, a chunk of
exactly the rank's count, in the message that ends the window before.
What it is not: the books, the counts or the gate.
Who drives it: `coordinator.advance` begins events, `coordinator.averaging` releases ranks.

    StartEpoch(plan), ExtendPartition …                         a new event, or after a rest
    Update(next_plan), ExtendPartition …, SetGlobalStep         after an average

A rank released by an Update waits for the SetGlobalStep behind it, so that all of its
plan is here before its first batch.
"""

from collections.abc import Sequence

from flodl_core.coordinator import callbacks, cuts
from flodl_core.coordinator.aggregation import EpochTotals
from flodl_core.coordinator.cadence import Cadence, Slots
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
    state.totals = EpochTotals(epoch=span.event)
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


def release(state: SchedulerState, cycle: Cycle, now: Seconds) -> None:
    """Let every alive rank go on after the average of that cycle."""
    assert state.committed_version is not None
    ranks = state.cohort.alive_ranks
    plans = _deal_window(state, ranks, now)
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
        state.send(rank, SetGlobalStep(n=state.global_step))
    state.release(ranks, now)


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


def _open_window(state: SchedulerState, cadence: Cadence, now: Seconds) -> Slots:
    slack = callbacks.slack_ms(state)
    slots = cadence.slots(state.book.pooled_batches, slack_ms=slack)
    for rank, batches in slots.batches.items():
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
            window_batches=max(1, window_batches),
            cohort_batches=cohort,
        )
        for part in parts or (Range(0, 0),)
    ]


def _extend(state: SchedulerState, rank: Rank, parts: Sequence[EpochPlan]) -> None:
    """Tell a rank of all ranges but the first, which its plan holds."""
    for part in parts[1:]:
        state.send(rank, ExtendPartition(epoch=part.epoch, offset=part.offset, size=part.size))
