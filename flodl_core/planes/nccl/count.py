"""COUNT: one sum tells every rank who brings how much.

```
[ n of each rank | samples of each rank | health of each rank | unfrozen flag of each segment ]
```

f64 on the device. A rank's health is 0, or NaN where a value of it is not finite: it
declared, and adds nothing.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from flodl_core.ids import Rank
from flodl_core.messages.data import RankTally
from flodl_core.planes.control_vector import flags_of, tallies_of
from flodl_core.planes.nccl.collective import Collective, Fabric
from flodl_core.planes.nccl.parts import CountClaim
from flodl_core.planes.segment import F64
from flodl_core.reduce.mass import gamma_mass, mover_mass

_PARTS_A_RANK: Final = 3


@dataclass(frozen=True, slots=True)
class Count:
    """What a count says.

    Attributes:
        mine: of this rank.
        mass: of all that is brought.
        movers: how many ranks bring anything.
        flags: how many ranks have each parameter segment unfrozen.
    """

    mine: RankTally
    mass: float
    movers: float
    flags: F64


class CountVector:
    """The numbers of one rank's counts.

    Args:
        fabric: of the device.
        rank: of this process, in the world as it formed.
        world_size: ranks of that world.
        segments: parameter segments.
    """

    def __init__(self, fabric: Fabric, rank: Rank, *, world_size: int, segments: int) -> None:
        self._rank, self._world = rank, world_size
        self._healths = slice(2 * world_size, _PARTS_A_RANK * world_size)
        self._numbers = fabric.mirror(_PARTS_A_RANK * world_size + segments)
        self._health = self._numbers.device[2 * world_size + rank]

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
        vector[self._healths.stop :] = claim.unfrozen
        self._numbers.send()
        self._health.copy_(sick)

    def sum(self, comm: Collective) -> None:
        """Enqueue COUNT, and the way back of what came."""
        comm.sum_plain(self._numbers.device)
        self._numbers.fetch()

    def read(self, gamma: float) -> Count:
        """Return what came, once a mark behind `sum` is done."""
        found: F64 = self._numbers.fetched.copy()
        health = found[self._healths]
        declared = ~np.isfinite(health)
        health[:] = declared
        found[: self._world][declared] = 0.0
        tallies = tallies_of(found, self._world, map(Rank, range(self._world)))
        return Count(
            mine=tallies[self._rank],
            mass=math.fsum(gamma_mass(tally.n, gamma) for tally in tallies),
            movers=math.fsum(mover_mass(tally.n) for tally in tallies),
            flags=flags_of(found, self._world),
        )
