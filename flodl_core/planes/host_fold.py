"""One host's contributions to one cycle: who is in, with which mass, and where the values lie.

The set is frozen when the control round ships: from then on every round of the cycle
is served from the same slots with the same masses, whatever happens to their ranks.
Slots are read here and nowhere else. A contribution without mass is never read, so
nothing of it, not even NaN, reaches a sum.

Driven by the thread of the relay or root; it decides nothing about rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flodl_core.ids import Rank, Round
from flodl_core.messages.job import Geometry
from flodl_core.planes.control_vector import add_rank
from flodl_core.planes.round_plan import Gather
from flodl_core.planes.segment import F32, F64
from flodl_core.planes.slot import Slot, SlotHeader
from flodl_core.planes.staging import control_length
from flodl_core.reduce.buckets import Bucket
from flodl_core.reduce.fold import Term


@dataclass(frozen=True, slots=True)
class _Contribution:
    rank: Rank
    slot: Slot
    header: SlotHeader

    def mass(self, round_: Round) -> float:
        is_buffers = round_ is Round.BUFFERS
        return self.header.mass_buffers if is_buffers else self.header.mass_params

    def region(self, round_: Round) -> F32:
        return self.slot.buffers if round_ is Round.BUFFERS else self.slot.params


class HostFold:
    """The frozen contributions of a host.

    Attributes:
        control: this host's control vector of the frozen cycle, f64.
    """

    control: F64

    def __init__(self, geometry: Geometry, world_size: int) -> None:
        self._world_size = world_size
        self._contributions: tuple[_Contribution, ...] = ()
        self._gathers: dict[Rank, Gather] = {}
        self.control = np.zeros(control_length(geometry, world_size), np.float64)

    def freeze(
        self,
        ranks: Sequence[Rank],
        slots: Mapping[Rank, Slot],
        headers: Mapping[Rank, SlotHeader],
    ) -> None:
        """Take the snapshots of these ranks, ascending, into the cycle.

        Args:
            ranks: with a ready mark.
            slots: at least theirs.
            headers: what their slots said when the mark came; never read again from the slot.
        """
        self._contributions = tuple(
            _Contribution(rank, slots[rank], headers[rank]) for rank in sorted(ranks)
        )
        self.control.fill(0.0)
        for one in self._contributions:
            add_rank(
                self.control,
                self._world_size,
                one.rank,
                header=one.header,
                unfrozen=one.slot.unfrozen,
            )

    def clear(self) -> None:
        """Forget the contributions: this host is not in the cycle."""
        self._contributions = ()
        self.control.fill(0.0)

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """All ranks of the frozen set, those without mass too."""
        return tuple(one.rank for one in self._contributions)

    def movers(self, round_: Round) -> tuple[Rank, ...]:
        """Return the ranks that have mass in this round, ascending."""
        return tuple(one.rank for one in self._contributions if one.mass(round_) > 0)

    def mass(self, round_: Round) -> float:
        """Return the summed mass of this round; of the control round, that of the parameters."""
        return sum(one.mass(round_) for one in self._contributions)

    def terms(self, round_: Round, bucket: Bucket, base: F32 | None = None) -> list[Term]:
        """Return what this host adds to a bucket, in ascending rank order.

        The values are views of the slots where the bucket is one run; else they are
        gathered into kept scratch, valid until the next call.

        Args:
            round_: which round.
            bucket: of its plan.
            base: what a narrow wire subtracts from each contribution.
        """
        return [
            Term(self._values(one, round_, bucket), one.mass(round_), base)
            for one in self._contributions
            if one.mass(round_) > 0
        ]

    def _values(self, one: _Contribution, round_: Round, bucket: Bucket) -> F32:
        gather = self._gathers.setdefault(one.rank, Gather())
        return gather.values(one.region(round_), bucket)
