"""What one round moves: its buckets, and where each lies in a region.

The same plan is computed by the root, every relay and every rank from the control
sum, so a frame of another plan is recognised. No thread and no socket.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np

from flodl_core.ids import Cycle, Rank, Round, WireDtype
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

_VALUE_BYTES: Final = {WireDtype.F32: 4, WireDtype.BF16: 2}


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The buckets of one round of one cycle.

    Attributes:
        active: which segments take part; of a buffers round, all.
        wire: what values travel as; bf16 ones are differences from the last commit.
    """

    cycle: Cycle
    round: Round
    buckets: tuple[Bucket, ...]
    active: tuple[bool, ...]
    wire: WireDtype = WireDtype.F32

    @property
    def count(self) -> int:
        """How many buckets the round has."""
        return len(self.buckets)

    @property
    def is_narrow(self) -> bool:
        """Whether differences travel in place of values."""
        return self.wire is WireDtype.BF16

    def nbytes(self, index: int) -> int:
        """Return the bytes of one bucket's values."""
        return bucket_values(self.buckets[index]) * _VALUE_BYTES[self.wire]

    def fits(self, frame: BucketFrame) -> bool:
        """Return whether a frame is a bucket of this plan, with values or declared empty."""
        return (
            frame.cycle == self.cycle
            and frame.round is self.round
            and frame.count == self.count
            and 0 <= frame.index < self.count
            and frame.dtype == self.wire
            and frame.nbytes == (self.nbytes(frame.index) if frame.mass > 0 else 0)
        )

    def flaw_of(
        self, frame: BucketFrame, index: int, *, mass: float, ranks: tuple[Rank, ...]
    ) -> str | None:
        """Return why a host's bucket cannot be folded; None if it can.

        Args:
            frame: of the bucket.
            index: which bucket is due.
            mass: what its control vector said that the host brings to this round.
            ranks: likewise, from which of its ranks.
        """
        if not self.fits(frame) or frame.index != index:
            return (
                f"it sent bucket {frame.index} of {frame.count} of the {frame.round} round of "
                f"cycle {frame.cycle}, expected bucket {index} of {self.count} of {self.round}"
            )
        if frame.ranks != ranks or frame.mass != mass:
            return (
                f"its bucket {index} of the {frame.round} round holds ranks {list(frame.ranks)} "
                f"with mass {frame.mass}, expected {list(ranks)} with {mass} as in its control "
                "vector"
            )
        return None

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
            dtype=self.wire.value,
        )


def plan_params(geometry: Geometry, cycle: Cycle, control: F64, wire: WireDtype) -> RoundPlan:
    """Plan the params round from the cycle's control sum."""
    world_size = (control.size - len(geometry.params)) // 3
    active = active_segments(geometry, cycle, flags_of(control, world_size))
    buckets = cut_buckets(active_spans(geometry, active))
    return RoundPlan(cycle, Round.PARAMS, buckets, active, wire)


def plan_buffers(geometry: Geometry, cycle: Cycle) -> RoundPlan:
    """Plan the buffers round, which is f32 on any wire.

    A running variance that fell far since the last commit could come out of a rounded
    difference below zero.
    """
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


def narrow_places(plan: RoundPlan) -> tuple[int, ...]:
    """Return where each bucket begins, and the last one ends, among the values of the round."""
    ends = accumulate((bucket_values(bucket) for bucket in plan.buckets), initial=0)
    return tuple(ends)


class Gather:
    """A bucket's values as one array: the view where it is one run, else kept scratch."""

    def __init__(self) -> None:
        self._kept: F32 | None = None

    def values(self, region: F32, bucket: Bucket) -> F32:
        """Return the values, unchanged until the next call."""
        if is_contiguous(bucket):
            return view_of(region, bucket)
        size = bucket_values(bucket)
        if self._kept is None or self._kept.size < size:
            self._kept = np.empty(size, np.float32)
        gather(region, bucket, self._kept[:size])
        return self._kept[:size]


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
