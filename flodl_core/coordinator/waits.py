"""Every wait that is worth showing: who, in which phase, how long, until what.

What it is: a list composed from the same ceilings that the ticks enforce, so that
what is shown is what will happen.
What it is not: enforcement.
Who drives it: `coordinator.view`.
"""

from dataclasses import dataclass

from flodl_core.coordinator.ceiling import Ceiling
from flodl_core.coordinator.liveness import heartbeat_ceiling, is_burning
from flodl_core.coordinator.saves import SavePhase
from flodl_core.coordinator.state import RunStage, SchedulerState
from flodl_core.coordinator.tick import progress_ceiling, stage_ceiling, stage_words
from flodl_core.ids import HostName, Rank
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


_Wait = tuple[Rank | None, HostName | None, str, Ceiling, str]


def _run_waits(state: SchedulerState) -> list[_Wait]:
    waits: list[_Wait] = []
    if state.stage is RunStage.ENDED:
        return waits
    stage = stage_ceiling(state)
    if stage is not None:
        rendezvous = state.stage is RunStage.RENDEZVOUS
        outcome = "the run fails" if rendezvous else "the last commit is saved and the run ends"
        waits.append((None, None, stage_words(state), stage, outcome))
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
    if state.stop is not None and not state.ending:
        grace = Ceiling(state.stop.since, state.settings.stop_grace_s)
        waits.append((None, None, state.window_end_words, grace, "the last commit is saved"))
    if state.leaving_since is not None:
        ceiling = Ceiling(state.leaving_since, state.settings.leave_timeout_s)
        ranks = ", ".join(map(str, state.cohort.alive_ranks))
        waits.append((None, None, f"leaving: ranks {ranks}", ceiling, "they are ended by force"))
    return waits


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
            waits.append((record.rank, record.host, "in a batch", progress, "it is evicted"))
    return waits
