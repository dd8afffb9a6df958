"""Which values of a round travel, and how they are cut into buckets.

Pure arithmetic on the run's geometry; every process of a run computes the same
plan from the same control sum, so the plan itself never travels.

```
geometry.params  |-- seg 0 --|pad|- seg 1 (frozen) -|-- seg 2 --|pad|-- seg 3 --|
active spans     [===========]                      [===========================]
buckets          [ 0   ][ 1  |                      | 1 ][ 2   ][ 3            ]
```

Padding between two active neighbours is zero on every rank and travels with them,
so that a model without frozen parts is one run.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Cycle
from flodl_core.messages.job import Geometry, Segment
from flodl_core.units import BUCKET_BYTES, STORAGE_ALIGN_BYTES

_VALUE_BYTES = 4
_MAX_GAP_VALUES = STORAGE_ALIGN_BYTES // _VALUE_BYTES - 1


class Run(NamedTuple):
    """A stretch of consecutive f32 values of a region."""

    offset: int
    """Index of its first value."""
    length: int
    """Values in it, > 0."""


Bucket: TypeAlias = tuple[Run, ...]
"""What one BucketFrame carries, in order."""


def bucket_values(bucket: Bucket) -> int:
    """Return how many f32 values a bucket holds."""
    return sum(run.length for run in bucket)


def active_segments(
    geometry: Geometry, cycle: Cycle, flags: npt.NDArray[np.float64]
) -> tuple[bool, ...]:
    """Return for each parameter segment whether it takes part in the params round.

    Args:
        geometry: of the run.
        cycle: 0 is the initial broadcast, in which everything takes part.
        flags: one number a segment: how many ranks have it unfrozen now.

    Raises:
        LocalProtocolError: another number of flags than segments.
    """
    if len(flags) != len(geometry.params):
        raise LocalProtocolError(
            f"{len(flags)} unfrozen flags came for {len(geometry.params)} parameter segments"
        )
    if cycle == 0:
        return (True,) * len(geometry.params)
    return tuple(
        segment.trainable or bool(flag > 0)
        for segment, flag in zip(geometry.params, flags, strict=True)
    )


def active_spans(geometry: Geometry, active: Sequence[bool]) -> tuple[Run, ...]:
    """Return the runs of the parameter region whose segments are active, ascending."""
    return _spans(geometry.params, active)


def buffer_spans(geometry: Geometry) -> tuple[Run, ...]:
    """Return the runs of the buffer region; every floating-point buffer is always reduced."""
    return _spans(geometry.buffers, (True,) * len(geometry.buffers))


def covers_region(spans: Sequence[Run], numel: int) -> bool:
    """Return whether nothing but zero padding of a region of `numel` values is outside."""
    if len(spans) != 1 or spans[0].offset != 0:
        return numel == 0
    return numel - spans[0].length <= _MAX_GAP_VALUES


def _spans(segments: Sequence[Segment], active: Sequence[bool]) -> tuple[Run, ...]:
    runs: list[Run] = []
    joinable = False
    for segment, wanted in zip(segments, active, strict=True):
        if segment.numel == 0:
            continue
        if not wanted:
            joinable = False
            continue
        if runs and joinable:
            last = runs[-1]
            gap = segment.offset - (last.offset + last.length)
            if 0 <= gap <= _MAX_GAP_VALUES:
                runs[-1] = Run(last.offset, last.length + gap + segment.numel)
                continue
        runs.append(Run(segment.offset, segment.numel))
        joinable = True
    return tuple(runs)


def cut_buckets(spans: Sequence[Run], bucket_bytes: int = BUCKET_BYTES) -> tuple[Bucket, ...]:
    """Cut the concatenation of `spans` into buckets of `bucket_bytes`, the last one shorter.

    Args:
        spans: runs in the order in which they travel.
        bucket_bytes: a positive multiple of 4.

    Returns:
        The buckets in order; none if there are no values.

    Raises:
        LocalProtocolError: bucket_bytes is not a positive multiple of 4.
    """
    capacity, rest = divmod(bucket_bytes, _VALUE_BYTES)
    if rest or capacity <= 0:
        raise LocalProtocolError(
            f"a bucket of {bucket_bytes} bytes was asked for, expected a positive multiple of 4"
        )
    buckets: list[Bucket] = []
    filling: list[Run] = []
    room = capacity
    for span in spans:
        offset, left = span
        while left:
            length = min(left, room)
            filling.append(Run(offset, length))
            offset, left, room = offset + length, left - length, room - length
            if room == 0:
                buckets.append(tuple(filling))
                filling, room = [], capacity
    if filling:
        buckets.append(tuple(filling))
    return tuple(buckets)
