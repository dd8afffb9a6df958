"""What the newest complete bundle of a simulated run holds, and how another run begins with it.

What it is: the committed values and the coordinator's facts, with the oracle's own record
of which positions were settled; a resumed run is judged by that record, not by the facts.
What it is not: a file.
Who drives it: `simulation.oracles` keeps one, `simulation.simulate` resumes with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flodl_core.coordinator.facts import ResumePoint, SaveFacts
from flodl_core.messages.timing import TensorBlob
from flodl_core.planes.velocity import OuterState
from flodl_core.simulation.tiny_model import F32


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A complete bundle.

    Attributes:
        settled: by event, for each position whether it is trained or dropped in this bundle.
    """

    facts: SaveFacts
    local_buffers: Mapping[str, TensorBlob]
    params: F32
    buffers: F32
    settled: Mapping[int, tuple[bool, ...]]
    outer: OuterState = field(default_factory=OuterState)

    def point_for(self, world_size: int) -> ResumePoint:
        """Where a run of so many ranks goes on."""
        facts = self.facts
        is_same = world_size == facts.world_size == facts.ranks_alive
        return ResumePoint(
            epoch=facts.epoch,
            sync_round=facts.sync_round,
            syncs=facts.syncs,
            global_step=facts.global_step,
            samples_trained=facts.samples_trained,
            samples_dropped=facts.samples_dropped,
            coverage=facts.coverage[0] if facts.coverage else None,
            arrangement=facts.arrangement if is_same else None,
            elche=facts.elche if world_size == facts.world_size else None,
            finished=facts.finished,
            local_buffers=self.local_buffers,
        )
