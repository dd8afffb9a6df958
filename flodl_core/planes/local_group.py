"""The ranks of one host, as its relay or the root sees them: barrier, sockets, slots.

Joins the pure relay machine to the DATA sockets: marks and ends of channels go in,
rounds to ship and RoundEnds to fan out come back in order, to be performed by the
plane's thread when it has time. Everything else the machine asks for is done at once.

Owned by that thread; it folds nothing and knows no link.
"""

import socket
from collections import deque
from collections.abc import Callable, Mapping

from flodl_core.ids import Rank, Round
from flodl_core.messages.data import RoundEnd
from flodl_core.messages.job import Geometry
from flodl_core.net.clock import now
from flodl_core.planes.data_sockets import DataSockets
from flodl_core.planes.event_loop import PlaneLoop
from flodl_core.planes.host_fold import HostFold
from flodl_core.planes.staging import Staging
from flodl_core.relay.machine import (
    DropRank,
    EndRelay,
    Event,
    FanOut,
    Note,
    RankGone,
    RelayMachine,
    RoundEndReceived,
    ShipRound,
    Tick,
)
from flodl_core.units import Seconds

LONGEST_WAIT_S: Seconds = 0.1
"""How often a waiting plane looks up even if nothing wakes it."""

_ORDER = {Round.CONTROL: 0, Round.PARAMS: 1, Round.BUFFERS: 2}

NoteSink = Callable[[Note], None]


class LocalGroup:
    """One host's ranks.

    Attributes:
        due: what the plane's thread has still to perform, in order.
        end_reason: why the group has ended; None while it has not.
        fold: the contributions of the frozen cycle.
    """

    def __init__(
        self,
        loop: PlaneLoop,
        geometry: Geometry,
        staging: Staging,
        *,
        machine: RelayMachine,
        world_size: int,
        on_note: NoteSink | None,
    ) -> None:
        """Prepare; `open` takes the sockets.

        Args:
            loop: of the plane's thread.
            geometry: of the run.
            staging: this host's segment.
            machine: the host's barrier.
            world_size: ranks of the run.
            on_note: told what was not acted on.
        """
        self.due: deque[ShipRound | FanOut] = deque()
        self.end_reason: str | None = None
        self.fold = HostFold(geometry, world_size)
        self._loop = loop
        self._machine = machine
        self._on_note = on_note
        self._sockets = DataSockets(
            loop, geometry, staging, on_event=self.feed, on_refused=self._rank_refused
        )

    def open(self, socks: Mapping[Rank, socket.socket]) -> None:
        """Take the ranks' sockets."""
        self._sockets.open(socks)

    @property
    def has_alive_ranks(self) -> bool:
        """Whether a rank may still give its mark."""
        return self.end_reason is None and bool(self._machine.alive)

    def is_in(self, end: RoundEnd) -> bool:
        """Return whether the machine waits for the end of this very round."""
        return (end.cycle, end.round) == (self._machine.cycle, self._machine.round)

    def is_past(self, end: RoundEnd) -> bool:
        """Return whether this round ended before the one that the machine waits for."""
        cycle, round_ = self._machine.cycle, self._machine.round
        if cycle is None or round_ is None:
            return False
        return (end.cycle, _ORDER[end.round]) < (cycle, _ORDER[round_])

    def feed(self, event: Event) -> None:
        """Give an event to the machine, and do or queue what it asks for."""
        for effect in self._machine.handle(event, now()):
            match effect:
                case ShipRound() | FanOut():
                    self.due.append(effect)
                case DropRank():
                    self._sockets.drop(effect.rank)
                    self._rank_refused(effect.rank, effect.reason)
                case EndRelay():
                    self.end_reason = effect.reason
                case Note():
                    self._note(effect)

    def declare_dead(self, rank: Rank) -> None:
        """Wait for a rank no more; a mark that it has sent already still counts."""
        self._sockets.read_rest(rank)
        if rank in self._machine.alive:
            self.feed(RankGone(rank))

    def freeze(self, effect: ShipRound) -> None:
        """Take the snapshots of the control round that is to be shipped."""
        self.fold.freeze(effect.ranks, self._sockets.slots, self._sockets.headers)

    def fan_out(self, effect: FanOut) -> None:
        """Tell ranks that a round ended."""
        for rank in effect.ranks:
            self._sockets.send(rank, effect.round_end)

    def end_round(self, end: RoundEnd) -> None:
        """Take the end of a round and tell the ranks at once."""
        self.feed(RoundEndReceived(end))
        waiting = deque(self.due)
        self.due.clear()
        for effect in waiting:
            if isinstance(effect, FanOut):
                self.fan_out(effect)
            else:
                self.due.append(effect)

    def wait(self) -> None:
        """Wait for something to happen, at most `LONGEST_WAIT_S`."""
        deadline = self._machine.deadline()
        instant = now()
        if deadline is not None and deadline <= instant:
            self.feed(Tick())
            return
        timeout = LONGEST_WAIT_S if deadline is None else min(LONGEST_WAIT_S, deadline - instant)
        self._loop.wait(timeout)

    def close(self) -> None:
        """Close sockets and slots."""
        self.fold.clear()
        self._sockets.close()

    def _rank_refused(self, rank: Rank, reason: str) -> None:
        self._note(Note(code="rank_refused", fields={"rank": rank, "reason": reason}))

    def _note(self, note: Note) -> None:
        if self._on_note is not None:
            self._on_note(note)
