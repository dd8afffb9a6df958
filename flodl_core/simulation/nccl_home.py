"""What a simulated rank on NCCL has around it: the coordinator, the root, communicators.

What it is: a protocol, and the records that go through it.
What it is not: behaviour; `nccl_world` has that.
Who drives it: `nccl_rank`.
"""

from dataclasses import dataclass
from typing import Protocol

from flodl_core.ids import Cycle, Rank
from flodl_core.messages import control
from flodl_core.messages.data import RankTally
from flodl_core.simulation.nccl_group import Average, Brought, SimGroup
from flodl_core.simulation.rank_calls import Drawn
from flodl_core.simulation.tiny_model import F32


@dataclass(frozen=True, slots=True)
class StarOffer:
    """What a rank shows the root in one of its cycles: values, or none."""

    cycle: Cycle
    params: F32 | None = None
    buffers: F32 | None = None
    is_initial: bool = False


@dataclass(frozen=True, slots=True)
class SimClaim:
    """A cycle that the rank was called to."""

    cycle: Cycle
    tally: RankTally


class Home(Protocol):
    """What a rank has around it."""

    def say(self, rank: Rank, message: object) -> None:
        """Send to the coordinator."""

    def join(self, rank: Rank, message: control.NewNcclSession | None) -> None:
        """Come to a session: of a message, or to the first one."""

    def group(self, number: int) -> SimGroup | None:
        """Return a session's communicator."""

    def show(self, rank: Rank, offer: StarOffer) -> None:
        """Show the root a slot."""

    def star_ended(self, rank: Rank) -> StarOffer | None:
        """Return what the root's cycle came to, once it is over; it stays until taken."""

    def take_star(self, rank: Rank) -> None:
        """Take that."""

    def offered(self, claim: SimClaim, values: Brought, drawn: list[Drawn]) -> None:
        """A claim was made, of these values and batches."""

    def adopted(self, rank: Rank, average: Average, velocity: F32) -> None:
        """A rank holds what it made of an average."""

    def visit(self, site: str) -> None:
        """Somebody may die here."""

    def exits(self, rank: Rank) -> None:
        """The process ends by itself."""
