"""What the planes need of the connection between a host and the root.

The two ends of a mux link, or of a channel inside a process, look like this. Its
callbacks arrive in the link's own thread; the plane passes them on at once.
"""

from collections.abc import Callable
from typing import Protocol

from flodl_core.messages.data import BucketFrame


class BucketLink(Protocol):
    """Sends messages and buckets to one peer, in the order of the calls of each kind.

    A message may overtake buckets that wait. The peer's end calls
    `on_bucket_begin(frame)` for a place to put the values of a bucket that has any,
    `on_bucket(frame)` once they are in it, and `on_message(message)`.
    """

    def send(self, message: object) -> None:
        """Send a message; never waits for the peer."""

    def send_bucket(
        self, frame: BucketFrame, values: memoryview, *, done: Callable[[], None] | None = None
    ) -> None:
        """Send a bucket; `values` stay unchanged until `done` is called."""

    def close(self) -> None:
        """End the connection; may be called more than once, from any thread."""
