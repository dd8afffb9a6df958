"""The consensus on its way down, as a relay receives it.

Values land in their final place, the staging segment; only a bucket of several runs
takes a way through scratch. Nothing reads them before the RoundEnd, which may
overtake the buckets and is then held back until the last one is in.

`begin` and `complete` are called by the link's receiver thread, the rest by the
relay's thread; the counter is the only thing that both touch.
"""

import numpy as np

from flodl_core.errors import RemoteProtocolError
from flodl_core.messages.data import BucketFrame
from flodl_core.planes.round_plan import RoundPlan, is_contiguous, scatter, view_of
from flodl_core.planes.segment import F32, F64
from flodl_core.reduce.buckets import bucket_values


class IncomingRound:
    """The buckets of one params or buffers round.

    Attributes:
        received: how many buckets are complete.
    """

    def __init__(self, plan: RoundPlan, region: F32) -> None:
        self.plan = plan
        self.received = 0
        self._region = region
        self._scratch: F32 | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every bucket is in."""
        return self.received == self.plan.count

    def begin(self, frame: BucketFrame) -> memoryview:
        """Return the place for a bucket's values.

        Raises:
            RemoteProtocolError: it is not the next bucket of this round.
        """
        self._check(frame)
        bucket = self.plan.buckets[frame.index]
        if is_contiguous(bucket):
            return view_of(self._region, bucket).data
        self._scratch = np.empty(bucket_values(bucket), np.float32)
        return self._scratch.data

    def complete(self, frame: BucketFrame) -> None:
        """Count a bucket whose values, if it has any, are in their place.

        A bucket without mass leaves the last committed values where they are.
        """
        self._check(frame)
        if self._scratch is not None:
            scatter(self._scratch, self.plan.buckets[frame.index], self._region)
            self._scratch = None
        self.received += 1

    def _check(self, frame: BucketFrame) -> None:
        if not self.plan.fits(frame) or frame.index != self.received:
            raise unexpected_bucket(frame, f"bucket {self.received} of {self.plan.count}")


class IncomingControl:
    """The control sum of one cycle, received into the staging segment."""

    def __init__(self, cycle: int, vector: F64) -> None:
        self._cycle = cycle
        self._vector = vector
        self.is_complete = False

    def begin(self, frame: BucketFrame) -> memoryview:
        """Return the place for the sum.

        Raises:
            RemoteProtocolError: it is not this cycle's control sum, or comes twice.
        """
        self._check(frame)
        return self._vector.data

    def complete(self, frame: BucketFrame) -> None:
        """Count it."""
        self._check(frame)
        self.is_complete = True

    def _check(self, frame: BucketFrame) -> None:
        if (
            frame.cycle != self._cycle
            or frame.round != "control"
            or frame.dtype != "f64"
            or frame.nbytes != self._vector.nbytes
            or self.is_complete
        ):
            raise unexpected_bucket(frame, f"the control sum of cycle {self._cycle}")


def unexpected_bucket(frame: BucketFrame, expected: str) -> RemoteProtocolError:
    """Return the error for a bucket that is out of turn."""
    return RemoteProtocolError(
        f"bucket {frame.index} of {frame.count} of the {frame.round} round of cycle "
        f"{frame.cycle} came ({frame.nbytes} bytes), expected {expected}",
        fix="start every process of the run from the same version of flodl and of the job",
    )
