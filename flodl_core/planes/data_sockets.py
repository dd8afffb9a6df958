"""The DATA sockets of one host's ranks, as the folding side sees them.

Takes each rank's PlaneHello with its slot, answers with the host's staging segment,
turns Ready marks and ends of channels into the events of the relay machine, and
sends RoundEnds. A rank that speaks for another one, or offers a slot that does not
fit, is let go like one that ended: it costs its own work and nothing else.

Owned by the plane's thread; nothing in here waits longer than one small message.
"""

import math
import os
import select
import socket
from collections.abc import Callable, Mapping, Sequence

from flodl_core.errors import FlodlError, RemoteProtocolError
from flodl_core.ids import Rank
from flodl_core.messages.data import PlaneHello, Ready, RoundEnd, StagingOffer
from flodl_core.messages.job import Geometry
from flodl_core.net.local import BlockingPlain
from flodl_core.net.shared_memory import read_only_duplicate
from flodl_core.planes.descriptors import close_all, sole_descriptor
from flodl_core.planes.event_loop import PlaneLoop
from flodl_core.planes.slot import Slot, SlotHeader
from flodl_core.planes.staging import Staging
from flodl_core.relay.machine import RankGone, RankReady
from flodl_core.units import FLOAT32_MAX, Seconds

MESSAGE_TIMEOUT_S: Seconds = 2.0
"""Longest wait for the rest of a message whose first byte is there, or for room to send one."""


_EXACT = 2**53


class DataSockets:
    """One channel a rank.

    Attributes:
        slots: of the ranks that said hello, by rank; kept after a rank has gone.
        headers: what each rank's slot said at its latest mark, checked then.
    """

    def __init__(
        self,
        loop: PlaneLoop,
        geometry: Geometry,
        staging: Staging,
        *,
        on_event: Callable[[RankReady | RankGone], None],
        on_refused: Callable[[Rank, str], None],
    ) -> None:
        """Prepare; `open` takes the sockets.

        Args:
            loop: of the plane's thread.
            geometry: of the run.
            staging: this host's segment.
            on_event: receives marks and ends, in the plane's thread.
            on_refused: told why a rank was let go for what it sent.
        """
        self.slots: dict[Rank, Slot] = {}
        self.headers: dict[Rank, SlotHeader] = {}
        self._loop = loop
        self._geometry = geometry
        self._staging = staging
        self._on_event = on_event
        self._on_refused = on_refused
        self._channels: dict[Rank, BlockingPlain] = {}

    def open(self, socks: Mapping[Rank, socket.socket]) -> None:
        """Watch the ranks' sockets; they are owned from here on."""
        for rank, sock in socks.items():
            channel = BlockingPlain(sock, write_stall_s=MESSAGE_TIMEOUT_S)
            self._channels[rank] = channel
            self._loop.watch(channel, self._reader_of(rank))

    def send(self, rank: Rank, end: RoundEnd) -> None:
        """Tell a rank that a round ended; a rank that does not take it is let go."""
        self._send(rank, end)

    def read_rest(self, rank: Rank) -> None:
        """Take what a rank has sent already, so that its mark counts before its death does."""
        while (channel := self._channels.get(rank)) is not None and _is_readable(channel):
            self._read(rank)

    def drop(self, rank: Rank) -> None:
        """Close a rank's channel; its slot stays mapped."""
        channel = self._channels.pop(rank, None)
        if channel is not None:
            self._loop.forget(channel)
            channel.close()

    def close(self) -> None:
        """Close all channels and slots."""
        for rank in list(self._channels):
            self.drop(rank)
        for slot in self.slots.values():
            slot.close()
        self.slots.clear()

    def _reader_of(self, rank: Rank) -> Callable[[], None]:
        return lambda: self._read(rank)

    def _read(self, rank: Rank) -> None:
        channel = self._channels.get(rank)
        if channel is None or not _is_readable(channel):
            return
        try:
            message, fds = channel.receive(MESSAGE_TIMEOUT_S)
        except EOFError:
            self._let_go(rank, None)
            return
        except (FlodlError, OSError) as error:
            self._let_go(rank, str(error))
            return
        try:
            self._take(rank, message, fds)
        except (FlodlError, OSError) as error:
            self._let_go(rank, str(error))
        finally:
            close_all(fds)

    def _take(self, rank: Rank, message: object, fds: Sequence[int]) -> None:
        if isinstance(message, PlaneHello) and rank not in self.slots:
            _check_rank(rank, message.rank)
            self.slots[rank] = Slot.attach(sole_descriptor(fds, "a PlaneHello"), self._geometry)
            self._offer_staging(rank)
        elif isinstance(message, Ready) and rank in self.slots:
            _check_rank(rank, message.rank)
            self.headers[rank] = _checked_header(self.slots[rank], message)
            self._on_event(RankReady(rank, message.cycle))
        else:
            raise RemoteProtocolError(f"rank {rank} sent {type(message).__name__} out of turn")

    def _offer_staging(self, rank: Rank) -> None:
        fd = read_only_duplicate(self._staging.fd)
        try:
            self._send(rank, StagingOffer(nbytes=self._staging.nbytes), fds=(fd,))
        finally:
            os.close(fd)

    def _send(self, rank: Rank, message: object, fds: Sequence[int] = ()) -> None:
        channel = self._channels.get(rank)
        if channel is None:
            return
        try:
            channel.send(message, fds)
        except TimeoutError:
            self._let_go(rank, f"it takes no {type(message).__name__}")
        except OSError:
            return  # it is gone, which the reader learns after whatever it had sent before

    def _let_go(self, rank: Rank, reason: str | None) -> None:
        self.drop(rank)
        if reason is not None:
            self._on_refused(rank, reason)
        self._on_event(RankGone(rank))


def _is_readable(channel: BlockingPlain) -> bool:
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _check_rank(expected: Rank, said: Rank) -> None:
    if said != expected:
        raise RemoteProtocolError(f"the channel of rank {expected} speaks for rank {said}")


def _checked_header(slot: Slot, mark: Ready) -> SlotHeader:
    """Return the header of a snapshot; refuse one that cannot be folded."""
    header = slot.header()
    if header.cycle != mark.cycle:
        raise RemoteProtocolError(
            f"rank {mark.rank} is ready for cycle {mark.cycle}, its slot says {header.cycle}"
        )
    if not (0 <= header.n < _EXACT and 0 <= header.samples < _EXACT):
        raise RemoteProtocolError(
            f"rank {mark.rank} counts {header.n} batches and {header.samples} samples, expected "
            "numbers from 0 that f64 holds exactly"
        )
    mass, mover = header.mass_params, header.mass_buffers
    has_moved = header.n > 0
    is_usable = math.isfinite(mass) and mass <= FLOAT32_MAX and (mass > 0) == has_moved
    if not is_usable or mover != float(has_moved) or (header.declared and has_moved):
        raise RemoteProtocolError(
            f"rank {mark.rank} gives n = {header.n}, masses {mass} and {mover}, declared = "
            f"{header.declared}; expected mass only with n > 0 and no declaration"
        )
    return header
