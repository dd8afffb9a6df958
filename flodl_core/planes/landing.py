"""Where the consensus of a round lands at a relay until the round has ended.

On the f32 wire values land in their final place, which nobody reads before the
RoundEnd. On a narrow wire differences from the last commit are kept aside, since what
they refer to must stay until the round has committed; then they are added to it.

`place` and `land` are called by the link's receiver thread, `commit` by the relay's.
"""

from typing import Protocol

import numpy as np

from flodl_core.planes.round_plan import (
    RoundPlan,
    is_contiguous,
    narrow_places,
    scatter,
    view_of,
)
from flodl_core.planes.segment import BF16, F32
from flodl_core.reduce.buckets import bucket_values
from flodl_core.reduce.narrow import Narrow


class Landing(Protocol):
    """Takes the buckets of one round, one after the other."""

    def place(self, index: int) -> memoryview:
        """Return the place for a bucket's values."""

    def land(self, index: int) -> None:
        """Take a bucket whose values are in the place given for them."""

    def commit(self) -> None:
        """Make what landed the consensus; the round has committed."""


class DirectLanding:
    """Values, in the region itself; only a bucket of several runs takes a way through scratch."""

    def __init__(self, plan: RoundPlan, region: F32) -> None:
        self._plan = plan
        self._region = region
        self._kept: F32 | None = None
        self._scratch: F32 | None = None

    def place(self, index: int) -> memoryview:
        """Return the bucket's place in the region, or scratch for it."""
        bucket = self._plan.buckets[index]
        if is_contiguous(bucket):
            return view_of(self._region, bucket).data
        size = bucket_values(bucket)
        if self._kept is None or self._kept.size < size:
            self._kept = np.empty(size, np.float32)
        self._scratch = self._kept[:size]
        return self._scratch.data

    def land(self, index: int) -> None:
        """Bring what lies in scratch to the region."""
        if self._scratch is not None:
            scatter(self._scratch, self._plan.buckets[index], self._region)
            self._scratch = None

    def commit(self) -> None:
        """Do nothing: all is in place."""


class DifferenceLanding:
    """Differences, beside the region that they are from."""

    def __init__(self, plan: RoundPlan, region: F32, kept: BF16, narrow: Narrow) -> None:
        """Land in `kept`, which has room for all values of the region."""
        self._plan = plan
        self._region = region
        self._kept = kept
        self._narrow = narrow
        self._places = narrow_places(plan)
        self._landed: list[int] = []

    def place(self, index: int) -> memoryview:
        """Return the bucket's place among the differences."""
        return self._kept[self._places[index] : self._places[index + 1]].data

    def land(self, index: int) -> None:
        """Remember that this bucket has values."""
        self._landed.append(index)

    def commit(self) -> None:
        """Add the differences of each bucket that has any to the region."""
        for index in self._landed:
            at = self._places[index]
            for offset, length in self._plan.buckets[index]:
                run = self._region[offset : offset + length]
                self._narrow.add_into(run, run, self._kept[at : at + length])
                at += length
