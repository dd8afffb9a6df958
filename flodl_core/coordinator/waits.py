"""Every wait that is worth showing: who, in which phase, how long, until what.

What it is: a list composed from the same ceilings that the ticks enforce, so that
what is shown is what will happen.
What it is not: enforcement.
Who drives it: `coordinator.view`.
"""

from dataclasses import dataclass

from flodl_core.coordinator.ceiling import Ceiling
from flodl_core.coordinator.cohort import RankRecord
from flodl_core.coordinator.liveness import heartbeat_ceiling, is_burning
from flodl_core.coordinator.saves import SavePhase
from flodl_core.coordinator.state import RunStage, SchedulerState
from flodl_core.coordinator.tick import (
    awaited_evaluation,
    progress_ceiling,
    stage_ceiling,
    stage_words,
)
from flodl_core.ids import HostName, Rank, RankPhase
from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True)
class WaitView:
    """Somebody has waited for a while: for how long, and what will happen."""

    rank: Rank | None
    host: HostName | None
    phase: str
    age_s: Seconds
    ceiling_s: Seconds
    outcome: str
    """What happens when the ceiling is reached."""


def list_waits(state: SchedulerState, now: Seconds) -> tuple[WaitView, ...]:
    """The waits that are longer than `wait_shown_after_s`, those of the run first."""
    waits = [*_run_waits(state), *_rank_waits(state, now)]
    shown_after = state.settings.wait_shown_after_s
    return tuple(
        WaitView(rank, host, phase, ceiling.age(now), ceiling.limit_s, outcome)
        for rank, host, phase, ceiling, outcome in waits
        if ceiling.age(now) > shown_after
    )


_BATCH_WORDS = {
    RankPhase.DATA: "in a batch: waiting for its data",
    RankPhase.TRAINING: "in a batch: computing",
}
_CYCLE_WORDS = {
    RankPhase.DATA: "reduce: waits for its batch, which waits for its data",
    RankPhase.TRAINING: "reduce: waits for its batch",
    RankPhase.SNAPSHOT: "snapshot: laying out its parameters",
    RankPhase.REDUCING: "reduce: waiting for the average",
    RankPhase.ADOPTING: "adopt: taking over the average",
}

_Wait = tuple[Rank | None, HostName | None, str, Ceiling, str]


def _run_waits(state: SchedulerState) -> list[_Wait]:
    waits: list[_Wait] = []
    if state.stage is RunStage.ENDED:
        return waits
    stage = stage_ceiling(state)
    if stage is not None:
        rendezvous = state.stage is RunStage.RENDEZVOUS
        outcome = "the run fails" if rendezvous else "the last commit is saved and the run ends"
        evaluation = awaited_evaluation(state)
        target = evaluation.target if evaluation is not None else None
        host = state.cohort[target].host if target is not None else None
        words = stage_words(state) if target is None else f"callback: {stage_words(state)}"
        waits.append((target, host, words, stage, outcome))
    save, ceiling = state.saves.current, state.saves.ceiling
    if save is not None and ceiling is not None:
        asking = state.saves.phase is SavePhase.ASKING
        phase = f"{'asking for' if asking else 'writing'} the save of version {save.version}"
        outcome = "the run ends with what is saved"
        waits += [
            (rank, state.cohort[rank].host, phase, ceiling, outcome) for rank in sorted(save.owed)
        ]
        if not save.owed:
            waits.append((None, None, phase, ceiling, outcome))
    waits += _session_waits(state)
    if state.stop is not None and state.stop.is_asked and not state.ending:
        grace = Ceiling(state.stop.since, state.settings.stop_grace_s)
        waits.append((None, None, state.window_end_words, grace, "the last commit is saved"))
    if state.leaving_since is not None:
        ceiling = Ceiling(state.leaving_since, state.settings.leave_timeout_s)
        ranks = ", ".join(map(str, state.cohort.alive_ranks))
        waits.append((None, None, f"leaving: ranks {ranks}", ceiling, "they are ended by force"))
    return waits


def _session_waits(state: SchedulerState) -> list[_Wait]:
    """Ranks that a communicator waits for, where ranks average among themselves."""
    sessions = state.nccl
    if sessions is None or sessions.ceiling is None or state.ending:
        return []
    words = f"NCCL session {sessions.session} is {sessions.phase.value}"
    alive = state.cohort.alive_ranks
    goes = sessions.to_evict(alive)
    return [
        (
            rank,
            state.cohort[rank].host,
            words,
            sessions.ceiling,
            "it is evicted" if rank in goes else f"rank {goes[0]} is evicted",
        )
        for rank in sessions.missing(alive)
    ]


def _rank_waits(state: SchedulerState, now: Seconds) -> list[_Wait]:
    waits: list[_Wait] = []
    if state.stage in (RunStage.LEAVING, RunStage.ENDED):
        return waits
    for record in state.cohort.alive:
        silence = heartbeat_ceiling(record, state.spec)
        if silence is not None:
            busy = is_burning(record, now)
            phase = "busy, not answering" if busy else f"silent, last seen {record.phase.value}"
            outcome = "it is held busy until its progress ceiling" if busy else "it is lost"
            waits.append((record.rank, record.host, phase, silence, outcome))
        progress = progress_ceiling(state, record.rank)
        if progress is not None:
            phase = _BATCH_WORDS.get(record.phase, "in a batch")
            waits.append((record.rank, record.host, phase, progress, "it is evicted"))
    return waits + (_cycle_waits(state) if state.cycle.pending else _held_waits(state, now))


def _cycle_waits(state: SchedulerState) -> list[_Wait]:
    """Ranks that a cycle waits for, each in its own part of it.

    While others are still in their batches it waits until the first of those is given up.
    """
    alive = state.cohort.alive_ranks
    missing = [
        state.cohort[rank]
        for rank in state.cycle.missing(alive)
        if state.cohort[rank].phase in _CYCLE_WORDS and not state.keeps_cycle_waiting(rank)
    ]
    ceiling, outcome = stage_ceiling(state), "the last commit is saved and the run ends"
    if ceiling is None:
        first, since = _first_to_go(state), state.cycle.since
        if first is None or since is None:
            return []
        due, slow = first
        ceiling, outcome = Ceiling(since, due - since), f"rank {slow} is evicted"
    return [
        (record.rank, record.host, _cycle_words(record), ceiling, outcome) for record in missing
    ]


def _first_to_go(state: SchedulerState) -> tuple[Seconds, Rank] | None:
    """The rank that is given up first if no batch ends any more, and when."""
    ceilings = {rank: progress_ceiling(state, rank) for rank in state.cohort.alive_ranks}
    return min(((one.due(), rank) for rank, one in ceilings.items() if one), default=None)


def _cycle_words(record: RankRecord) -> str:
    """What a rank does in a cycle, and in which collective, where it is in one."""
    words = _CYCLE_WORDS[record.phase]
    return f"{words}, in {record.activity}" if record.activity else words


def _held_waits(state: SchedulerState, now: Seconds) -> list[_Wait]:
    """Ranks that are done with their windows, until the first of the others is given up."""
    held = [
        (record, record.phase_at)
        for record in state.cohort.alive
        if record.phase is RankPhase.HELD and record.phase_at is not None
    ]
    shown_after = state.settings.wait_shown_after_s
    long = [(record, since) for record, since in held if now - since > shown_after]
    if not long or state.stage is not RunStage.TRAINING:
        return []
    first = _first_to_go(state)
    if first is None:
        return []
    due, slow = first
    words, outcome = "held: waiting for the batches of others", f"rank {slow} is evicted"
    return [
        (record.rank, record.host, words, Ceiling(since, due - since), outcome)
        for record, since in long
        if progress_ceiling(state, record.rank) is None
    ]
