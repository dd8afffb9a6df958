"""What one round moves: its buckets, and where each lies in a region.

The same plan is computed by the root, every relay and every rank from the control
sum, so a frame of another plan is recognised. No thread and no socket.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from flodl_core.ids import Cycle, Rank, Round
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.job import Geometry
from flodl_core.planes.control_vector import flags_of
from flodl_core.planes.segment import F32, F64
from flodl_core.reduce.buckets import (
    Bucket,
    active_segments,
    active_spans,
    bucket_values,
    buffer_spans,
    cut_buckets,
)

MAX_AHEAD: Final = 4
"""Buckets that a host may send beyond the consensus that it has received."""

_VALUE_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The buckets of one round of one cycle.

    Attributes:
        active: which segments take part; of a buffers round, all.
    """

    cycle: Cycle
    round: Round
    buckets: tuple[Bucket, ...]
    active: tuple[bool, ...]

    @property
    def count(self) -> int:
        """How many buckets the round has."""
        return len(self.buckets)

    def nbytes(self, index: int) -> int:
        """Return the bytes of one bucket's values."""
        return bucket_values(self.buckets[index]) * _VALUE_BYTES

    def fits(self, frame: BucketFrame) -> bool:
        """Return whether a frame is a bucket of this plan, with values or declared empty."""
        return (
            frame.cycle == self.cycle
            and frame.round is self.round
            and frame.count == self.count
            and 0 <= frame.index < self.count
            and frame.dtype == "f32"
            and frame.nbytes == (self.nbytes(frame.index) if frame.mass > 0 else 0)
        )

    def frame(self, index: int, *, mass: float, ranks: tuple[Rank, ...]) -> BucketFrame:
        """Return the header of one bucket; a zero mass declares that no values follow."""
        return BucketFrame(
            cycle=self.cycle,
            round=self.round,
            index=index,
            count=self.count,
            mass=mass,
            ranks=ranks,
            nbytes=self.nbytes(index) if mass > 0 else 0,
            dtype="f32",
        )


def plan_params(geometry: Geometry, cycle: Cycle, control: F64, world_size: int) -> RoundPlan:
    """Plan the params round from the cycle's control sum."""
    active = active_segments(geometry, cycle, flags_of(control, world_size))
    buckets = cut_buckets(active_spans(geometry, active))
    return RoundPlan(cycle, Round.PARAMS, buckets, active)


def plan_buffers(geometry: Geometry, cycle: Cycle) -> RoundPlan:
    """Plan the buffers round."""
    buckets = cut_buckets(buffer_spans(geometry))
    return RoundPlan(cycle, Round.BUFFERS, buckets, (True,) * len(geometry.buffers))


def control_frame(
    cycle: Cycle, vector: F64, *, mass: float, ranks: tuple[Rank, ...]
) -> BucketFrame:
    """Return the header of a control vector, up or down; its mass is Σ gamma mass."""
    return BucketFrame(
        cycle=cycle,
        round=Round.CONTROL,
        index=0,
        count=1,
        mass=mass,
        ranks=ranks,
        nbytes=vector.nbytes,
        dtype="f64",
    )


def is_contiguous(bucket: Bucket) -> bool:
    """Return whether a bucket is one run, so that it needs no gathering."""
    return len(bucket) == 1


def view_of(region: F32, bucket: Bucket) -> F32:
    """Return the view of a contiguous bucket."""
    offset, length = bucket[0]
    return region[offset : offset + length]


def gather(region: F32, bucket: Bucket, into: F32) -> None:
    """Copy a bucket's runs out of a region."""
    at = 0
    for offset, length in bucket:
        np.copyto(into[at : at + length], region[offset : offset + length])
        at += length


def scatter(values: F32, bucket: Bucket, region: F32) -> None:
    """Copy a bucket's values to their runs in a region."""
    at = 0
    for offset, length in bucket:
        np.copyto(region[offset : offset + length], values[at : at + length])
        at += length
