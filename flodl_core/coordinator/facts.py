"""What is known of a run at a commit: what a save keeps and a resume takes up.

What it is: frozen records, the same on the way out and on the way in.
What it is not: a file; the bundle's meta holds them.
Who drives it: `save_steps` makes SaveFacts; the launcher makes a ResumePoint of a bundle
and gives it to the coordinator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flodl_core.dispatch.ranges import Range
from flodl_core.elche.record import ElcheRecord
from flodl_core.messages.timing import TensorBlob
from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True)
class EpochFacts:
    """One finished event, as the cohort's aggregate.

    Attributes:
        samples: trained ones; `dropped` counts the others.
        scalars: means of what the job's steps noted, by name.
        report: what the job said of its model at the evaluation.
    """

    epoch: int
    pass_index: int
    label: str
    loss: float | None
    samples: int
    dropped: int
    duration_s: Seconds
    syncs: int
    metric: float | None = None
    metric_name: str | None = None
    report: str | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpenTotals:
    """What the ranks have reported of an event that is not complete.

    Attributes:
        loss_sum: of the mean losses, each times its samples.
        loss_samples: samples of batches with a finite loss.
        scalars: (sum, count) of what the job's steps noted, by name.
        duration_s: since the event began, times between a save and its resume left out.
    """

    loss_sum: float = 0.0
    loss_samples: int = 0
    scalars: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    duration_s: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class EpochCoverage:
    """What is not yet trained nor dropped of one event.

    Attributes:
        uncovered: ascending and disjoint.
        dropped: what was given up, likewise.
        first_cycle: the number of the event's first cycle.
    """

    epoch: int
    total_samples: int
    uncovered: tuple[Range, ...]
    dropped: tuple[Range, ...] = ()
    first_cycle: int = 1


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Who was to train which of the uncovered samples of an open event.

    The same world that goes on from it draws the same batches in the same order.

    Attributes:
        held: by rank of the world, what each holds, in its order of training.
        reserved: by rank, what of its reserved span nobody holds; empty where all is held.
        returned: what lies in front of the spans, in the order in which it is dealt.
    """

    held: tuple[tuple[Range, ...], ...]
    reserved: tuple[Range, ...] = ()
    returned: tuple[Range, ...] = ()

    @property
    def everything(self) -> list[Range]:
        """All ranges, in no order."""
        return [*(part for parts in self.held for part in parts), *self.reserved, *self.returned]


@dataclass(frozen=True, slots=True)
class SaveFacts:
    """What the meta file says besides the files' digests.

    Attributes:
        epoch: event number that is under way, or the number of events at the end.
        sync_round: the version, which is the cycle of the commit that is saved.
        coverage: events that have begun and are not complete.
        elche: the state of the cadence; None in Sync.
        arrangement: of the open event; None between events, and where it is not known.
        finished: the events that are complete, oldest first.
        open_totals: of the open event; None between events.
    """

    epoch: int
    epochs: int
    epoch_splits: int
    global_step: int
    sync_round: int
    world_size: int
    ranks_alive: int
    seed: int
    batch_size: int
    n_samples: int
    samples_trained: int
    samples_dropped: int
    coverage: tuple[EpochCoverage, ...]
    elche: ElcheRecord | None = None
    syncs: int = 0
    arrangement: Arrangement | None = None
    finished: tuple[EpochFacts, ...] = ()
    open_totals: OpenTotals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where a run goes on.

    Attributes:
        epoch: event number that is under way, or that begins next.
        sync_round: version of the consensus that it begins with.
        coverage: of the event under way; None between events.
        arrangement: of that event, if the world is the one that was saved, whole; else None.
        elche: the state of the cadence of a world of this size; None where it is measured anew.
        open_totals: of the event under way; None between events.
        local_buffers: integer and bool buffers of the consensus, by state-dict name.
    """

    epoch: int
    sync_round: int
    syncs: int
    global_step: int
    samples_trained: int
    samples_dropped: int
    coverage: EpochCoverage | None = None
    arrangement: Arrangement | None = None
    elche: ElcheRecord | None = None
    finished: tuple[EpochFacts, ...] = ()
    open_totals: OpenTotals | None = None
    local_buffers: Mapping[str, TensorBlob] = field(default_factory=dict)
