"""What the history keeps of a cycle that ended, frozen at that moment.

What it is: one effect from the state. It costs one look at each rank, once a cycle.
What it is not: the whole view, which is composed twice a second for readers.
Who drives it: `coordinator.machine`, after everything that an event brought about.
"""

from flodl_core.coordinator.cycle import EndedCycle
from flodl_core.coordinator.effects import RecordWindow
from flodl_core.coordinator.state import SchedulerState
from flodl_core.coordinator.view import elche_view, training_view
from flodl_core.units import Seconds


def record_window(state: SchedulerState, ended: EndedCycle, now: Seconds) -> RecordWindow:
    """Return what to keep of a cycle."""
    training, elche = training_view(state, now), elche_view(state)
    averaged = ended.outcome == "committed"
    return RecordWindow(
        cycle=ended.cycle,
        version=state.committed_version or 0,
        outcome=ended.outcome,
        epoch=training.epoch,
        global_step=training.global_step,
        samples_done=training.samples_done,
        samples_total=training.samples_total,
        loss=training.loss,
        throughput=training.throughput,
        ideal_throughput=training.ideal_throughput,
        window_ms=ended.window_ms,
        sync_ms=ended.sync_ms,
        overhead=elche.overhead,
        anchor=elche.anchor,
        anchor_rank=elche.anchor_rank,
        elche_phase=elche.phase,
        verdict=elche.last_verdict,
        reason=elche.reason,
        batch_counts=elche.batch_counts,
        ms_per_batch=tuple(record.mean_batch_ms for record in state.cohort),
        weights=tuple(record.weight if averaged else None for record in state.cohort),
        divergences=tuple(record.divergence if averaged else None for record in state.cohort),
    )
