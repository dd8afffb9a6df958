"""COUNT: one sum tells every rank who brings how much, and its GPU by which factors.

```
[ n of each rank | samples of each rank | mass of each rank | unfrozen flag of each segment ]
factor = mass / Σ mass          share = mover / Σ mover
```

f64 on the device. The mass of a rank with a value that is not finite is NaN: it declared,
and is in no sum. The factors are worked out on the device, where PARAM and BUFFER read
them.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from flodl_core.ids import Rank
from flodl_core.messages.data import RankTally
from flodl_core.planes.control_vector import flags_of, tallies_of
from flodl_core.planes.nccl.collective import WARM_RUNS, Collective, Fabric
from flodl_core.planes.nccl.parts import CountClaim
from flodl_core.planes.segment import F64
from flodl_core.reduce.mass import gamma_mass, is_realized

_PARTS_A_RANK: Final = 3


@dataclass(frozen=True, slots=True)
class Count:
    """What a count says.

    Attributes:
        mine: of this rank.
        realized: whether anybody brings anything.
        flags: how many ranks have each parameter segment unfrozen.
    """

    mine: RankTally
    realized: bool
    flags: F64


class CountVector:
    """The numbers of one rank's counts.

    Args:
        fabric: of the device.
        rank: of this process, in the world as it formed.
        world_size: ranks of that world.
        segments: parameter segments.
        has_buffers: whether `share` is wanted.

    Attributes:
        factor: by which this rank's parameters enter the sum, f32 on the device.
        share: by which its buffers do, likewise.
    """

    def __init__(
        self, fabric: Fabric, rank: Rank, *, world_size: int, segments: int, has_buffers: bool
    ) -> None:
        self._rank, self._world = rank, world_size
        self._has_buffers = has_buffers
        self._flags = slice(_PARTS_A_RANK * world_size, None)
        self._numbers = fabric.mirror(_PARTS_A_RANK * world_size + segments)
        self._masses = self._numbers.device[2 * world_size : self._flags.start]
        self._mass = self._masses[rank]
        self._weights = torch.zeros_like(self._masses)
        self._weight = self._weights[rank]
        self._total, self._movers = torch.zeros_like(self._mass), torch.zeros_like(self._mass)
        self._moved = torch.zeros_like(self._masses, dtype=torch.bool)
        self.factor = torch.zeros_like(self._mass, dtype=torch.float32)
        self.share = torch.zeros_like(self.factor)
        self._weigh_again = fabric.repeated(self._weigh)
        with fabric.syncing():
            for _ in range(WARM_RUNS):
                self._weigh_again()  # a kernel's first launch waits for those that wait for peers

    def send(self, claim: CountClaim, sick: torch.Tensor) -> None:
        """Enqueue the way of this rank's own numbers to the device.

        Args:
            claim: what it would contribute.
            sick: its health on the device: 0, or NaN where a value is not finite.
        """
        world, vector = self._world, self._numbers.sent
        vector[:] = 0.0
        vector[self._rank] = claim.n
        vector[world + self._rank] = claim.samples
        vector[2 * world + self._rank] = gamma_mass(claim.n, claim.gamma)
        vector[self._flags] = claim.unfrozen
        self._numbers.send()
        self._mass.add_(sick)

    def sum(self, comm: Collective) -> None:
        """Enqueue COUNT, the way back of what came, and what follows of it on the device."""
        comm.sum_plain(self._numbers.device)
        self._numbers.fetch()
        comm.then(self._weigh_again)

    def read(self, gamma: float) -> Count:
        """Return what came, once a mark behind `sum` is done."""
        found: F64 = self._numbers.fetched.copy()
        masses = found[2 * self._world : self._flags.start]
        declared = ~np.isfinite(masses)
        masses[:] = declared
        found[: self._world][declared] = 0.0
        tallies = tallies_of(found, self._world, map(Rank, range(self._world)))
        mass = math.fsum(gamma_mass(tally.n, gamma) for tally in tallies)
        return Count(
            mine=tallies[self._rank],
            realized=is_realized(mass),
            flags=flags_of(found, self._world),
        )

    def _weigh(self) -> None:
        torch.nan_to_num(self._masses, 0.0, out=self._weights)
        torch.sum(self._weights, 0, out=self._total)
        torch.div(self._weight, self._total, out=self.factor)
        if self._has_buffers:
            torch.gt(self._weights, 0.0, out=self._moved)
            torch.sum(self._moved, 0, dtype=torch.float64, out=self._movers)
            torch.reciprocal(self._movers, out=self.share)
