"""The root's end of one worker host: buckets that arrived, waiting to be folded.

At most `MAX_AHEAD` buckets of a host wait, in kept memory, so a host that sends more
than the flow allows breaks the protocol instead of filling the root. The link's
receiver thread fills, the root's thread takes and gives back; each field is written
by one of the two only, or is a queue.
"""

from collections import deque
from collections.abc import Callable

import numpy as np

from flodl_core.errors import RemoteProtocolError
from flodl_core.ids import HostName, Rank, WireDtype
from flodl_core.messages.data import BucketFrame
from flodl_core.planes.link import BucketLink
from flodl_core.planes.round_plan import MAX_AHEAD
from flodl_core.planes.segment import BF16, F32, F64, U8


class ArrivedBucket:
    """A complete bucket of a host, and the kept memory that its values lie in."""

    def __init__(self, frame: BucketFrame, memory: U8 | None) -> None:
        self.frame = frame
        self.memory = memory

    def values(self) -> F32 | BF16:
        """Return the values of a params or buffers bucket."""
        assert self.memory is not None
        values = self.memory[: self.frame.nbytes]
        if self.frame.dtype == WireDtype.BF16:
            return values.view(np.uint16)
        return values.view(np.float32)

    def f64(self) -> F64:
        """Return the values of a control bucket."""
        assert self.memory is not None
        return self.memory[: self.frame.nbytes].view(np.float64)


class HostPort:
    """One attached host.

    Attributes:
        host: its name.
        ranks: that speak through it.
        link: to its relay.
    """

    def __init__(
        self,
        host: HostName,
        ranks: tuple[Rank, ...],
        link: BucketLink,
        *,
        bucket_bytes: int,
        on_arrival: Callable[[], None],
    ) -> None:
        """Prepare; memory is taken when the first buckets come.

        Args:
            host: its name.
            ranks: its ranks.
            link: to its relay.
            bucket_bytes: largest bucket that the run's geometry allows.
            on_arrival: called in the receiver thread after each complete bucket.
        """
        self.host = host
        self.ranks = ranks
        self.link = link
        self._bucket_bytes = bucket_bytes
        self._on_arrival = on_arrival
        self._free: deque[U8] = deque()
        self._made = 0
        self._filling: U8 | None = None
        self._arrived: deque[ArrivedBucket] = deque()

    def begin(self, frame: BucketFrame) -> memoryview:
        """Return the place for the values of a bucket.

        Raises:
            RemoteProtocolError: the bucket is too large, or the host is too far ahead.
        """
        if frame.nbytes > self._bucket_bytes:
            raise RemoteProtocolError(
                f"host {self.host} sent a bucket of {frame.nbytes} bytes, expected at most "
                f"{self._bucket_bytes}"
            )
        self._filling = self._take_memory()
        return self._filling[: frame.nbytes].data

    def complete(self, frame: BucketFrame) -> None:
        """Queue a bucket whose values, if it has any, are in their place.

        Raises:
            RemoteProtocolError: the host is too far ahead, or speaks for a rank that is not its.
        """
        if len(self._arrived) >= MAX_AHEAD:
            raise self._too_far_ahead()
        if not set(frame.ranks) <= set(self.ranks):
            raise RemoteProtocolError(
                f"host {self.host} sent contributions of ranks {list(frame.ranks)}, expected only "
                f"those of {list(self.ranks)}"
            )
        memory, self._filling = self._filling, None
        self._arrived.append(ArrivedBucket(frame, memory if frame.nbytes else None))
        self._on_arrival()

    def head(self) -> BucketFrame | None:
        """Return the frame of the oldest waiting bucket, if one waits."""
        return self._arrived[0].frame if self._arrived else None

    def take(self) -> ArrivedBucket:
        """Take the oldest waiting bucket; it is to be given back."""
        return self._arrived.popleft()

    def give_back(self, bucket: ArrivedBucket) -> None:
        """Return the memory of a bucket that was folded."""
        if bucket.memory is not None:
            self._free.append(bucket.memory)

    def _take_memory(self) -> U8:
        if self._free:
            return self._free.popleft()
        if self._made == MAX_AHEAD:
            raise self._too_far_ahead()
        self._made += 1
        return np.empty(self._bucket_bytes, np.uint8)

    def _too_far_ahead(self) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"host {self.host} sent more than {MAX_AHEAD} buckets ahead of the consensus",
            fix="start every process of the run from the same version of flodl",
        )
