"""The worker hosts, as the root accounts for them: who is expected, who is in, who is gone.

Accounting is per host: one bucket a host and round step, expected while any of its
ranks is alive and its link holds. Hosts are kept in the order of the envelope, which is
the order of the sum. The root's thread reads and decides; only `attach` and the link
callbacks come from other threads.
"""

from collections.abc import Callable, Iterable

from flodl_core.errors import FlodlError, LocalProtocolError, RemoteProtocolError
from flodl_core.ids import Cycle, HostName, Rank, Round
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.job import HostRanks
from flodl_core.net.mux_outbox import LinkClosedError
from flodl_core.planes.host_port import HostPort
from flodl_core.planes.link import BucketLink


class WorkerHost:
    """One worker host of the run.

    Attributes:
        host: its name.
        ranks: its ranks, ascending.
        alive: those not declared dead.
        is_dropped: whether its link is gone for good.
    """

    def __init__(self, roster: HostRanks) -> None:
        self.host = roster.host
        self.ranks = roster.ranks
        self.alive = set(roster.ranks)
        self.is_dropped = False
        self.port: HostPort | None = None

    @property
    def is_expected(self) -> bool:
        """Whether a barrier waits for it."""
        return not self.is_dropped and bool(self.alive)

    def head(self) -> BucketFrame | None:
        """Return the frame of its oldest waiting bucket; what came before a drop still counts."""
        return None if self.port is None else self.port.head()

    def is_in(self, cycle: Cycle) -> bool:
        """Return whether its control vector of this cycle is here."""
        head = self.head()
        return head is not None and head.round is Round.CONTROL and head.cycle == cycle

    def open_port(self) -> HostPort:
        """Return the port of a host that takes part.

        Raises:
            LocalProtocolError: it was never attached.
        """
        if self.port is None:
            raise LocalProtocolError(f"host {self.host} takes part without a link")
        return self.port

    def drop(self) -> None:
        """Go on without it, for good; its link is ended."""
        if not self.is_dropped:
            self.is_dropped = True
            if self.port is not None:
                self.port.link.close()

    def send(self, message: object) -> bool:
        """Send a message; return False if the link does not take it.

        A link that has ended takes it for nothing: it is dropped when all that came through
        it is in, whichever of its directions noticed first.
        """
        return self._give(lambda link: link.send(message))

    def send_bucket(self, frame: BucketFrame, values: memoryview) -> bool:
        """Send a bucket; return False if the link does not take it, as `send`."""
        return self._give(lambda link: link.send_bucket(frame, values))

    def _give(self, send: Callable[[BucketLink], None]) -> bool:
        if self.port is None or self.is_dropped:
            return True
        try:
            send(self.port.link)
        except LinkClosedError:
            return True
        except (FlodlError, OSError):
            return False
        return True


class WorkerHosts:
    """All worker hosts, in the order of the envelope."""

    def __init__(
        self, rosters: Iterable[HostRanks], *, bucket_bytes: int, on_arrival: Callable[[], None]
    ) -> None:
        self._peers = {roster.host: WorkerHost(roster) for roster in rosters}
        self._bucket_bytes = bucket_bytes
        self._on_arrival = on_arrival

    def attach(self, host: HostName, link: BucketLink) -> None:
        """Give a host its link.

        Raises:
            LocalProtocolError: no such worker host, or it has one already.
        """
        peer = self._peers.get(host)
        if peer is None or peer.port is not None:
            raise LocalProtocolError(
                f"a link of host {host} was attached, expected one each of "
                f"{[name for name, one in self._peers.items() if one.port is None]}"
            )
        peer.port = HostPort(
            host, peer.ranks, link, bucket_bytes=self._bucket_bytes, on_arrival=self._on_arrival
        )

    def port_of(self, host: HostName) -> HostPort:
        """Return the port that a link's callback is for.

        Raises:
            RemoteProtocolError: the host is not attached, or was dropped.
        """
        peer = self._peers.get(host)
        if peer is None or peer.port is None or peer.is_dropped:
            raise RemoteProtocolError(f"host {host} sent values but is not part of the run now")
        return peer.port

    def named(self, host: HostName) -> WorkerHost | None:
        """Return the host of that name."""
        return self._peers.get(host)

    def of_rank(self, rank: Rank) -> WorkerHost | None:
        """Return the worker host of a rank; None if it is the launcher's own."""
        return next((peer for peer in self._peers.values() if rank in peer.ranks), None)

    def expected(self) -> list[WorkerHost]:
        """Return the hosts that a barrier waits for, in order."""
        return [peer for peer in self._peers.values() if peer.is_expected]

    def linked(self) -> list[WorkerHost]:
        """Return the hosts with a link that holds, in order."""
        return [peer for peer in self._peers.values() if peer.port and not peer.is_dropped]
