"""A communicator of the simulator: who is in it, and which collectives each member entered.

What it is: the law of collectives. Members enter the same ones in the same order, a result
is there once all have entered, and one whose member is gone never ends.
What it is not: sums; members compute them from what everybody brought.
Who drives it: `nccl_rank`, through `nccl_world`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from flodl_core.ids import Cycle, Rank
from flodl_core.messages.data import RankTally
from flodl_core.simulation.tiny_model import F32


@dataclass(frozen=True, slots=True)
class Brought:
    """What a member brings to PARAM: its values, which count only with a mass."""

    params: F32
    buffers: F32


@dataclass(frozen=True, slots=True)
class Average:
    """What one PARAM came to, before any outer step.

    Attributes:
        tallies: what each member of the session counted, ascending.
    """

    cycle: Cycle
    params: F32
    buffers: F32
    tallies: tuple[RankTally, ...]


@dataclass(frozen=True, slots=True)
class Completed:
    """What a member says at RECOVER: its newest completed cycle, and what it came to."""

    cycle: int
    average: Average | None


Payload: TypeAlias = RankTally | Brought | Completed


@dataclass(frozen=True, slots=True)
class EnteredCall:
    """One collective, as one member entered it."""

    name: str
    cycle: Cycle | None
    payload: Payload


class PhantomError(AssertionError):
    """A member entered another collective than the others, or another number of them."""


@dataclass(slots=True)
class SimGroup:
    """One communicator.

    Attributes:
        source: who gives away what it completed, as first act; None if nobody does.
    """

    number: int
    members: tuple[Rank, ...]
    source: Rank | None
    joined: set[Rank] = field(default_factory=set)
    _entered: dict[Rank, list[EnteredCall]] = field(default_factory=dict)

    @property
    def is_formed(self) -> bool:
        """Whether every member has come."""
        return self.joined == set(self.members)

    def enter(self, rank: Rank, entry: EnteredCall) -> int:
        """A member enters its next collective; return which one it is, from 0.

        Raises:
            PhantomError: another member entered another one at that place.
        """
        mine = self._entered.setdefault(rank, [])
        mine.append(entry)
        at = len(mine) - 1
        for other in self._entered.values():
            if len(other) > at and (other[at].name, other[at].cycle) != (entry.name, entry.cycle):
                raise PhantomError(
                    f"rank {rank} is in {entry.name} of cycle {entry.cycle}, beside "
                    f"{other[at].name} of cycle {other[at].cycle}, in session {self.number}"
                )
        return at

    def result(self, at: int) -> Mapping[Rank, Payload] | None:
        """Return what every member brought to a collective; None until all have entered."""
        if any(len(self._entered.get(rank, ())) <= at for rank in self.members):
            return None
        return {rank: self._entered[rank][at].payload for rank in self.members}
