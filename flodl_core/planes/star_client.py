"""A rank's end of the CPU data plane.

```
StarClient(...)      creates the slot, says PlaneHello with it, waits for the StagingOffer
write slot, header → ready(cycle)                 one mark; every round is served from the slot
wait_round() → RoundEnd(control)                  unrealized: the cycle is over, nothing changes
wait_round() → RoundEnd(params)                   read staging.params, slot not yet overwritten
wait_round() → RoundEnd(buffers)                  only if the model has floating-point buffers
```

Driven by the training thread, which blocks in `wait_round`. It moves no values: the
slot is written, and the staging segment read, through their arrays. What to adopt
and what to report is the worker's decision.
"""

import socket

from flodl_core.errors import RemoteProtocolError, RunLostError
from flodl_core.ids import Cycle, Rank, Round
from flodl_core.messages.data import PlaneHello, RankTally, Ready, RoundEnd, StagingOffer
from flodl_core.messages.job import Geometry
from flodl_core.net.local import BlockingPlain
from flodl_core.planes.control_vector import flags_of, tallies_of
from flodl_core.planes.descriptors import close_all, sole_descriptor
from flodl_core.planes.slot import Slot
from flodl_core.planes.staging import Staging
from flodl_core.reduce.buckets import Run, active_segments, active_spans
from flodl_core.relay.machine import following_round
from flodl_core.units import Seconds

EXCHANGE_TIMEOUT_S = 60.0
"""Longest wait for the host's StagingOffer."""


class StarClient:
    """Slot, staging and the round ends of one rank.

    Attributes:
        slot: this rank's snapshot, writable here.
        staging: the host's consensus, read-only here.
        has_buffers: whether a cycle has a buffers round.
    """

    def __init__(
        self, sock: socket.socket, geometry: Geometry, rank: Rank, world_size: int
    ) -> None:
        """Create the slot and exchange it for the host's staging segment.

        Args:
            sock: the inherited DATA socketpair; owned by the client from here on.
            geometry: of the run.
            rank: of this process.
            world_size: ranks of the run.

        Raises:
            RemoteProtocolError: the other end answered something else.
            RunLostError: the other end is gone, or did not answer in time.
        """
        self._channel = BlockingPlain(sock)
        self._geometry = geometry
        self._rank = rank
        self._world_size = world_size
        self._last_control: RoundEnd | None = None
        self.has_buffers = geometry.buffers_numel > 0
        self.slot = Slot.create(geometry)
        try:
            hello = PlaneHello(rank=rank, slot_bytes=self.slot.nbytes)
            self._channel.send(hello, fds=(self.slot.fd,))
            self.slot.forget_fd()
            self.staging = self._receive_staging()
        except (EOFError, OSError) as error:
            self.slot.close()
            self._channel.close()
            raise _lost(error) from error
        except BaseException:
            self.slot.close()
            self._channel.close()
            raise

    def _receive_staging(self) -> Staging:
        offer, fds = self._channel.receive(EXCHANGE_TIMEOUT_S)
        try:
            if not isinstance(offer, StagingOffer):
                raise RemoteProtocolError(
                    f"the data plane answered {type(offer).__name__}, expected StagingOffer",
                    fix="start every process of the run from the same version of flodl",
                )
            fd = sole_descriptor(fds, "a StagingOffer")
            return Staging.attach(fd, self._geometry, self._world_size, nbytes=offer.nbytes)
        finally:
            close_all(fds)

    def ready(self, cycle: Cycle) -> None:
        """Say that the slot holds this cycle's snapshot.

        The slot must not change before the cycle ends.

        Raises:
            RunLostError: the relay or launcher is gone.
        """
        self._last_control = None
        try:
            self._channel.send(Ready(rank=self._rank, cycle=cycle))
        except OSError as error:
            raise _lost(error) from error

    def wait_round(self, timeout_s: Seconds) -> RoundEnd:
        """Wait for the next round to end.

        Args:
            timeout_s: longest wait; nothing is lost if it passes, call again.

        Raises:
            TimeoutError: no round ended in that time.
            RunLostError: the relay or launcher is gone.
            RemoteProtocolError: something else than a RoundEnd came.
        """
        try:
            message, fds = self._channel.receive(timeout_s)
        except EOFError as error:
            raise _lost(error) from error
        close_all(fds)
        if not isinstance(message, RoundEnd):
            raise RemoteProtocolError(
                f"the data plane sent {type(message).__name__}, expected RoundEnd",
                fix="start every process of the run from the same version of flodl",
            )
        if message.round is Round.CONTROL:
            self._last_control = message
        return message

    def ends_cycle(self, end: RoundEnd) -> bool:
        """Return whether the cycle is over for this rank with this round."""
        return following_round(end.round, end.outcome, has_buffers=self.has_buffers) is None

    def tallies(self) -> tuple[RankTally, ...]:
        """Return what the control round of this cycle said of each rank that took part."""
        if self._last_control is None:
            return ()
        ranks = self._last_control.ranks_accepted
        return tallies_of(self.staging.control, self._world_size, ranks)

    def active_spans(self, cycle: Cycle) -> tuple[Run, ...]:
        """Return the runs of the parameter region that this cycle's params round covers.

        To be called after the RoundEnd of the control round; cycle 0 covers everything.
        """
        flags = flags_of(self.staging.control, self._world_size)
        return active_spans(self._geometry, active_segments(self._geometry, cycle, flags))

    def fileno(self) -> int:
        """Return the descriptor to wait on beside others."""
        return self._channel.fileno()

    def close(self) -> None:
        """Close the socket and both segments; views still held keep their pages."""
        self._channel.close()
        self.slot.close()
        self.staging.close()


def _lost(error: BaseException) -> RunLostError:
    return RunLostError(
        f"the data plane of this host ended ({error}), expected it to serve until the run ends",
        fix="look at the log of the relay, or of the launcher, for why it ended",
    )
