"""What a simulated rank asks of the rest of its world.

What it is: a record of functions, and the shape of what a rank draws.
What it is not: a rank.
Who drives it: `simulation.world` fills it in, `simulation.sim_rank` calls.
"""

from collections.abc import Callable
from dataclasses import dataclass

from flodl_core.ids import Cycle, SyncOutcome
from flodl_core.simulation.scenario import Site
from flodl_core.simulation.tiny_model import F32, TinySlot

Drawn = tuple[int, int, int]
"""Event, offset and size of one batch."""


@dataclass(slots=True)
class RankCalls:
    """What a rank asks of the rest of the world."""

    say: Callable[[object], None]
    """Send a message to the coordinator."""
    mark: Callable[[Cycle, TinySlot], None]
    """Give the ready mark to the host."""
    staging: Callable[[], tuple[F32, F32]]
    exited: Callable[[str], None]
    """The process ended; the text is its cause, empty after a clean end."""
    strike: Callable[[Site], bool]
    snapshot_taken: Callable[[Cycle, TinySlot, list[Drawn]], None]
    acknowledged: Callable[[Cycle, SyncOutcome, F32], None]
    """A cycle is over for the rank; with the parameters that it had just before."""
    checkpoint_read: Callable[[int], None]
