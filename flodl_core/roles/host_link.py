"""The launcher's end of one worker host's MUX connection.

Callbacks come from the link's receiver thread: values go straight to the root's
memory, messages are decoded here and posted, so that the event loop never waits
for bulk data.
"""

from collections.abc import Callable
from dataclasses import dataclass

from flodl_core.coordinator.events import RankMessage
from flodl_core.errors import BadFrameError, RemoteProtocolError
from flodl_core.ids import HostName, Rank
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.mux import Data, RankExit
from flodl_core.net.mux_end import MuxEnd
from flodl_core.net.mux_link import MuxLink
from flodl_core.planes.star_root import StarRoot
from flodl_core.wire.codec import decode_untrusted, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReports:
    """Whom a link tells, from its receiver thread."""

    rank_message: Callable[[RankMessage], None]
    rank_exit: Callable[[Rank], None]
    """A rank's channel ended at its relay."""
    closed: Callable[[HostName, Exception | None], None]
    """The link is gone; told once, last."""


class HostLink:
    """One host's link; `MuxLink` calls it back.

    Args:
        host: which host.
        ranks: that it speaks for.
        end: the connection after its handshake.
        root: takes its buckets.
        reports: whom to tell.
    """

    def __init__(
        self,
        host: HostName,
        ranks: tuple[Rank, ...],
        *,
        end: MuxEnd,
        root: StarRoot,
        reports: LinkReports,
    ) -> None:
        self.host = host
        self.ranks = ranks
        self.link = MuxLink(end, self, label=f"mux {host}")
        self._root = root
        self._reports = reports

    def send(self, rank: Rank, message: object) -> None:
        """Queue a message for one rank; a link that is gone takes it silently.

        Its end is, or will be, reported by `on_closed`.
        """
        kind, payload = encode(message)
        try:
            self.link.send(Data(rank=rank, kind=kind, payload=payload))
        except RemoteProtocolError:
            self.link.close()

    def on_message(self, message: object) -> None:
        """Take a message of the relay; in the receiver thread."""
        if isinstance(message, Data):
            self._check(message.rank)
            decoded = decode_untrusted(message.kind, message.payload)
            if decoded is not None:
                self._reports.rank_message(RankMessage(message.rank, decoded))
        elif isinstance(message, RankExit):
            self._check(message.rank)
            self._reports.rank_exit(message.rank)
        else:
            raise BadFrameError(f"host {self.host} sent {type(message).__name__} on its MUX link")

    def on_bucket_begin(self, frame: BucketFrame) -> memoryview:
        """Return the place for a bucket; in the receiver thread."""
        return self._root.on_bucket_begin(self.host, frame)

    def on_bucket(self, frame: BucketFrame) -> None:
        """Take a complete bucket; in the receiver thread."""
        self._root.on_bucket(self.host, frame)

    def on_closed(self, error: Exception | None) -> None:
        """Learn that the link is gone; in the receiver thread, last."""
        self._reports.closed(self.host, error)

    def _check(self, rank: Rank) -> None:
        if rank not in self.ranks:
            raise BadFrameError(f"host {self.host} speaks for rank {rank}, which is not its own")
