"""A model of a few numbers: what a simulated rank trains, and what its slot holds.

What it is: f32 parameters and buffers that depend on every sample drawn, in order,
and an integer counter that stays local. Real masses, and the real finite verdict.
What it is not: learning; the loss means nothing.
Who drives it: `simulation.sim_rank`; the oracles read slots.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flodl_core.ids import HostName, Rank
from flodl_core.messages.job import Geometry, LocalBuffer, RankFileRef
from flodl_core.messages.timing import TensorBlob
from flodl_core.reduce.buckets import Run
from flodl_core.reduce.easgd import blend
from flodl_core.reduce.mass import gamma_mass, is_representable, mover_mass

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

PARAMS_A_BUCKET = 3
BUFFERS_A_BUCKET = 2
COUNTER = "steps"


@dataclass(frozen=True, slots=True)
class TinySlot:
    """One snapshot, as relay and root see it.

    Attributes:
        n: applied batches, 0 if the values are not finite.
        samples: samples drawn.
    """

    rank: Rank
    n: int
    samples: int
    declared: bool
    params_mass: float
    buffers_mass: float
    params: F32
    buffers: F32

    def mass(self, *, buffers: bool) -> float:
        """The mass of this slot in a buffers or a params round."""
        return self.buffers_mass if buffers else self.params_mass

    def values(self, *, buffers: bool) -> F32:
        """The values that a buffers or a params round folds."""
        return self.buffers if buffers else self.params


def tiny_geometry(param_buckets: int, buffer_buckets: int) -> Geometry:
    """The geometry of the tiny model; its segments are not spelled out."""
    return Geometry(
        params=(),
        params_numel=param_buckets * PARAMS_A_BUCKET,
        buffers=(),
        buffers_numel=buffer_buckets * BUFFERS_A_BUCKET,
        locals=(LocalBuffer(name=COUNTER, dtype="int64", shape=()),),
    )


def rank_file_of(rank: Rank, host: HostName, version: int) -> RankFileRef:
    """What a rank would have written at a save; the digest says of which version."""
    return RankFileRef(
        rank=rank,
        host=host,
        device="cpu:0",
        suffix=f".rank{rank}.pt",
        sha256=str(version),
        nbytes=1,
    )


class TinyModel:
    """The values of one rank."""

    def __init__(self, rank: Rank, geometry: Geometry) -> None:
        self.rank = rank
        index = np.arange(geometry.params_numel, dtype=np.float32)
        self.params: F32 = np.sin(index + np.float32(rank)).astype(np.float32)
        self.buffers: F32 = np.full(geometry.buffers_numel, rank, dtype=np.float32)
        self.counter = 0

    def train(self, offset: int, size: int, *, applied: bool) -> float:
        """Draw these positions and step, unless the step is skipped; return a loss."""
        target = np.float32((offset * 7 + size) % 23) / np.float32(23)
        self.buffers = (self.buffers * np.float32(0.5) + target).astype(np.float32)
        if applied:
            pull = np.float32(0.1 + 0.01 * self.rank)
            self.params = (self.params + pull * (target - self.params)).astype(np.float32)
            self.counter += 1
        return float(np.abs(self.params - target).mean())

    def poison(self) -> None:
        """Make a value non-finite: of the buffers on odd ranks, where there are some."""
        if self.rank % 2 and self.buffers.size:
            self.buffers = self.buffers.copy()
            self.buffers[-1] = np.float32(np.nan)
            return
        self.params = self.params.copy()
        self.params[0] = np.float32(np.nan)

    def restore(self, local_buffers: Mapping[str, TensorBlob]) -> None:
        """Take the local buffers of a saved run."""
        self.counter = int.from_bytes(local_buffers[COUNTER].data, "little")

    def adopt(self, params: F32 | None, buffers: F32 | None) -> None:
        """Take committed values; None keeps what is here."""
        if params is not None:
            self.params = params.copy()
        if buffers is not None:
            self.buffers = buffers.copy()

    def move(self, params: F32, buffers: F32 | None, *, snapshot: F32, alpha: float) -> None:
        """Move towards committed values as a rank that trained on does; take the buffers."""
        own = self.params.copy()
        blend(own, snapshot, params, (Run(0, own.size),), alpha=alpha)
        self.adopt(own, buffers)

    def snapshot(self, n: int, samples: int, *, gamma: float, world_size: int) -> TinySlot:
        """Decide whether the values are finite, and copy them."""
        values = np.abs(np.concatenate((self.params, self.buffers)))
        largest = float(values.max()) if values.size else 0.0
        mass = gamma_mass(n, gamma)
        declared = not is_representable(max(mass, 1.0), largest, world_size=world_size)
        return TinySlot(
            rank=self.rank,
            n=0 if declared else n,
            samples=samples,
            declared=declared,
            params_mass=0.0 if declared else mass,
            buffers_mass=0.0 if declared else mover_mass(n),
            params=self.params.copy(),
            buffers=self.buffers.copy(),
        )
