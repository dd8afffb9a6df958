"""Drain: the ranks of a host contribute what they have done, hand back the rest and leave.

What it is: the request with its refusals, and the leaving after the average that it
brought about. No death, no alert: what the ranks held goes to the others, they are told
to go, and the host is told that its part is over.
What it is not: the cut; a request that stands is a reason for one.
Who drives it: `coordinator.machine` on DrainRequested, `averaging` and `advance` after a
cycle or where none is under way.
"""

from collections.abc import Collection

from flodl_core.coordinator import dead_ranks, nccl_cycle
from flodl_core.coordinator.cohort import RankLife, RankRecord
from flodl_core.coordinator.effects import DeclareRankDead, DismissHost
from flodl_core.coordinator.events import DrainRequested
from flodl_core.coordinator.state import RunStage, SchedulerState
from flodl_core.ids import HostName, RankPhase
from flodl_core.messages.control import Shutdown
from flodl_core.units import Seconds

_DRAINABLE = (RunStage.INITIAL, RunStage.TRAINING, RunStage.EVALUATING)


def refusal(state: SchedulerState, host: HostName) -> str:
    """Return why this host cannot be drained now; empty if it can."""
    hosts = {record.host for record in state.cohort}
    if host not in hosts:
        return f"there is no host {host!r} in this run; its hosts are {', '.join(sorted(hosts))}"
    if state.stage not in _DRAINABLE or state.stop is not None:
        return f"the run is not training: {'stopping' if state.stop else state.stage.value}"
    if host in state.drained:
        return f"host {host} has been drained"
    if not ranks_of(state, host):
        return f"host {host} has no rank left"
    staying = _staying(state, {*state.draining, host})
    if not staying:
        return f"host {host} is the last one with a rank; use flodl stop to end the run"
    if len(staying) < nccl_cycle.fewest_ranks(state):
        return (
            f"host {host} would leave only {staying[0].where}, and NCCL needs two; "
            "use flodl stop to end the run"
        )
    return ""


def request(state: SchedulerState, event: DrainRequested) -> None:
    """Take an operator's wish that a host leaves."""
    why_not = refusal(state, event.host)
    if why_not:
        state.note("drain_refused", host=event.host, who=event.who, reason=why_not)
        return
    if event.host in state.draining:
        state.note("drain_already_requested", host=event.host, who=event.who)
        return
    state.draining[event.host] = event.who
    state.announce(
        "drain_requested",
        f"{event.who} asked to drain {event.host}: its ranks leave after the next average",
        host=event.host,
        who=event.who,
    )


def ranks_of(state: SchedulerState, host: HostName) -> tuple[RankRecord, ...]:
    """Return the alive ranks of a host."""
    return tuple(record for record in state.cohort.alive if record.host == host)


def dismiss(state: SchedulerState, now: Seconds) -> bool:
    """Let the draining hosts go; return whether there was one."""
    if not state.draining or state.ending:
        return False
    hosts, state.draining = state.draining, {}
    staying = _staying(state, hosts)
    if len(staying) < nccl_cycle.fewest_ranks(state):
        names = ", ".join(sorted(hosts))
        why = "no other rank is left"
        if staying:
            why = f"only {staying[0].where} would be left, and NCCL needs two"
        state.announce("drain_called_off", f"the drain of {names} is off: {why}")
        return True
    leaving = [record for host in hosts for record in ranks_of(state, host)]
    for record in leaving:
        _let_go(state, record, hosts[record.host])
    for record in leaving:
        dead_ranks.reclaim(state, record, now)
        dead_ranks.hand_over_duties(state, record, now)
    for host in hosts:
        state.drained.add(host)
        state.out.append(DismissHost(host, f"drained by {hosts[host]}"))
        ranks = ", ".join(str(record.rank) for record in leaving if record.host == host)
        state.announce(
            "host_drained",
            f"host {host} is drained: rank {ranks} left; left to go on: {len(state.cohort.alive)}",
            host=host,
        )
    return True


def _staying(state: SchedulerState, leaving: Collection[HostName]) -> tuple[RankRecord, ...]:
    return tuple(record for record in state.cohort.alive if record.host not in leaving)


def _let_go(state: SchedulerState, record: RankRecord, who: str) -> None:
    state.send(record.rank, Shutdown())
    state.cohort.set_life(record, RankLife.LEAVING)
    record.cause, record.phase = f"drained by {who}", RankPhase.DONE
    if state.cadence is not None:
        state.cadence.lose(record.rank)
    state.out.append(
        DeclareRankDead(record.rank, record.cause, grace_s=state.settings.leave_timeout_s)
    )
