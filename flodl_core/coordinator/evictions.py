"""Eviction by an operator: a rank is ended and the others go on without it.

What it is: the request with its refusals. What follows is that of any loss: its samples
go to the others.
What it is not: an eviction by a rule; the ticks and the averages do those.
Who drives it: `coordinator.machine` on EvictRequested.
"""

from flodl_core.coordinator import dead_ranks, nccl_cycle
from flodl_core.coordinator.cohort import RankLife
from flodl_core.coordinator.events import EvictRequested
from flodl_core.coordinator.state import RunStage, SchedulerState
from flodl_core.ids import Rank
from flodl_core.units import Seconds

_EVICTABLE = (RunStage.TRAINING, RunStage.EVALUATING)


def refusal(state: SchedulerState, rank: Rank) -> str:
    """Return why this rank cannot be evicted now; empty if it can."""
    record = state.cohort.find(rank)
    if record is None:
        return f"there is no rank {rank} in this run; its ranks are 0 to {len(state.cohort) - 1}"
    if state.stage not in _EVICTABLE or state.stop is not None:
        return f"the run is not training: {'stopping' if state.stop else state.stage.value}"
    if record.life is RankLife.DEAD:
        return f"rank {rank} is lost already: {record.cause}"
    if record.life is not RankLife.ALIVE:
        return f"rank {rank} takes no part any more: {record.cause}"
    staying = [other for other in state.cohort.alive if other is not record]
    if not staying:
        return f"rank {rank} is the last one; use flodl stop to end the run"
    if len(staying) < nccl_cycle.fewest_ranks(state):
        return (
            f"rank {rank} would leave only {staying[0].where}, and NCCL needs two; "
            "use flodl stop to end the run"
        )
    return ""


def request(state: SchedulerState, event: EvictRequested, now: Seconds) -> None:
    """Take an operator's wish that a rank ends."""
    why_not = refusal(state, event.rank)
    if why_not:
        state.note("evict_refused", rank=event.rank, who=event.who, reason=why_not)
        return
    record = state.cohort[event.rank]
    state.announce(
        "evict_requested", f"{event.who} evicts {record.where}", rank=event.rank, who=event.who
    )
    dead_ranks.evict(state, record, f"by {event.who}", now)
