"""The consensus on its way down, as a relay receives it.

Each bucket is checked to be the next one of its round and handed to the round's
landing. Nothing reads values before the RoundEnd, which may overtake the buckets and
is then held back until the last one is in.

`begin` and `complete` are called by the link's receiver thread, the rest by the
relay's thread; the counter is the only thing that both touch.
"""

from flodl_core.errors import RemoteProtocolError
from flodl_core.messages.data import BucketFrame
from flodl_core.planes.landing import Landing
from flodl_core.planes.round_plan import RoundPlan
from flodl_core.planes.segment import F64


class IncomingRound:
    """The buckets of one params or buffers round.

    Attributes:
        received: how many buckets are complete.
    """

    def __init__(self, plan: RoundPlan, landing: Landing) -> None:
        self.plan = plan
        self.received = 0
        self._landing = landing

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
        return self._landing.place(frame.index)

    def complete(self, frame: BucketFrame) -> None:
        """Count a bucket whose values, if it has any, are in their place.

        A bucket without mass leaves the last committed values where they are.
        """
        self._check(frame)
        if frame.nbytes:
            self._landing.land(frame.index)
        self.received += 1

    def commit(self) -> None:
        """Make what came the consensus; the round is complete and has committed."""
        self._landing.commit()

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
