"""The lanes of a simulated world, by who stands at their ends.

What it is: which lanes a rank and a host have.
What it is not: their building or their ends.
Who drives it: `simulation.world`.
"""

from dataclasses import dataclass

from flodl_core.ids import Cycle
from flodl_core.messages.data import RoundEnd
from flodl_core.simulation.lanes import Lane
from flodl_core.simulation.sim_host import Bucket
from flodl_core.simulation.tiny_model import TinySlot


@dataclass(slots=True)
class RankWires:
    """The lanes of one rank."""

    control_up: Lane[object]
    control_down: Lane[object]
    marks: Lane[tuple[Cycle, TinySlot]]
    round_ends: Lane[RoundEnd]


@dataclass(slots=True)
class HostWires:
    """The lanes between one host and the root."""

    buckets_up: Lane[Bucket]
    buckets_down: Lane[Bucket]
    messages_down: Lane[object]

    def all(self) -> tuple[Lane[Bucket], Lane[Bucket], Lane[object]]:
        """Every lane of the link."""
        return self.buckets_up, self.buckets_down, self.messages_down
