"""One host between its ranks and the root: the real barrier, real folds, two roads each way.

What it is: a RelayMachine with slots and a staging. Buckets and messages travel on
lanes of their own, as pieces of a shared connection do, so a RoundEnd may arrive
before the last bucket of its round; it is served after it. The launcher's own ranks
have such a host too, whose link cannot break.
What it is not: the root.
Who drives it: `simulation.world`; ranks post marks, the root sends.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from flodl_core.ids import Cycle, HostName, Rank, Round, RoundOutcome
from flodl_core.messages.data import BucketFrame, RoundEnd
from flodl_core.messages.mux import RelayDeclareDead
from flodl_core.reduce.fold import Fold, Term
from flodl_core.relay.machine import (
    DropRank,
    EndRelay,
    FanOut,
    RankGone,
    RankReady,
    RelayMachine,
    RoundEndReceived,
    ShipRound,
    Tick,
    UpstreamClosed,
)
from flodl_core.relay.machine import Event as RelayEvent
from flodl_core.simulation.scenario import Scenario, Site
from flodl_core.simulation.tiny_model import (
    BUFFERS_A_BUCKET,
    F32,
    F64,
    PARAMS_A_BUCKET,
    TinySlot,
)
from flodl_core.simulation.virtual_loop import VirtualLoop
from flodl_core.units import Seconds

MAX_AHEAD = 2
"""Buckets that a host may be ahead of the consensus it has received."""

TALLY_FIELDS = 3


_ORDER = {Round.CONTROL: 0, Round.PARAMS: 1, Round.BUFFERS: 2}


def _place_in_run(what: RoundEnd | ShipRound) -> tuple[int, int]:
    return what.cycle, _ORDER[what.round]


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket under way: its frame and what follows it."""

    frame: BucketFrame
    values: F32 | F64


@dataclass(slots=True)
class HostCalls:
    """What a host asks of the rest of the world."""

    send_up: Callable[[Bucket], None]
    fan_out: Callable[[Rank, RoundEnd], None]
    """Deliver a RoundEnd to a rank."""
    relay_ended: Callable[[], None]
    """The relay's process ends: its link and its ranks' channels close."""
    drop_rank: Callable[[Rank, str], None]
    strike: Callable[[Rank, Site], bool]
    """Whether a fault at that site stops what was about to be done."""


@dataclass(slots=True)
class _Serving:
    """The round that this host ships and receives."""

    ship: ShipRound
    count: int
    sent: int = 0
    received: int = 0
    ends: list[RoundEnd] = field(default_factory=list)


class SimHost:
    """The relay of one host."""

    def __init__(
        self,
        scenario: Scenario,
        loop: VirtualLoop,
        host: HostName,
        ranks: tuple[Rank, ...],
        calls: HostCalls,
    ) -> None:
        self.host, self.ranks, self.calls = host, ranks, calls
        self.running = True
        self.slots: dict[Rank, TinySlot] = {}
        self.params: F32 = np.zeros(scenario.param_buckets * PARAMS_A_BUCKET, np.float32)
        self.buffers: F32 = np.zeros(scenario.buffer_buckets * BUFFERS_A_BUCKET, np.float32)
        self._scenario, self._loop = scenario, loop
        self._fold = Fold()
        self._machine = RelayMachine(
            ranks,
            has_buffers=scenario.buffer_buckets > 0,
            drain_ceiling_s=scenario.stall_timeout_s,
        )
        self._serving: _Serving | None = None
        self._early_ends: deque[RoundEnd] = deque()
        self._tick_at: Seconds | None = None

    # what arrives

    def rank_ready(self, rank: Rank, cycle: Cycle, slot: TinySlot) -> None:
        """A rank's mark arrived; its slot is mapped here."""
        if self.running:
            self.slots[rank] = slot
            self._feed(RankReady(rank, cycle))

    def rank_gone(self, rank: Rank) -> None:
        """A rank's channel ended."""
        if self.running:
            self._feed(RankGone(rank))

    def upstream_closed(self) -> None:
        """The link to the root ended."""
        if self.running:
            self._feed(UpstreamClosed("the link ended"))

    def take_message(self, message: object) -> None:
        """A message of the root arrived."""
        if not self.running:
            return
        if isinstance(message, RelayDeclareDead):
            self._feed(RankGone(message.rank))
        elif isinstance(message, RoundEnd):
            self._early_ends.append(message)
            self._serve_ends()

    def take_bucket(self, bucket: Bucket) -> None:
        """A bucket of the consensus arrived."""
        serving = self._serving
        if not self.running or serving is None:
            return
        frame = bucket.frame
        assert (frame.cycle, frame.round) == (serving.ship.cycle, serving.ship.round), (
            f"host {self.host} got {frame} while it served {serving.ship}"
        )
        assert frame.index == serving.received, f"{frame} out of turn"
        serving.received += 1
        if frame.round is not Round.CONTROL:
            place, width = self._place(frame.round)
            place[frame.index * width : (frame.index + 1) * width] = bucket.values
        self._pump()
        self._serve_ends()

    def stop(self) -> None:
        """The relay's process is gone."""
        self.running = False

    # what follows

    def _feed(self, event: RelayEvent) -> None:
        for effect in self._machine.handle(event, self._loop.now):
            match effect:
                case ShipRound():
                    self._begin(effect)
                case FanOut():
                    for rank in effect.ranks:
                        self.calls.fan_out(rank, effect.round_end)
                case DropRank():
                    self.calls.drop_rank(effect.rank, effect.reason)
                case EndRelay():
                    self.running = False
                    self.calls.relay_ended()
                case _:
                    pass
        self._machine.check()
        self._arm()

    def _arm(self) -> None:
        deadline = self._machine.deadline()
        if deadline is not None and deadline != self._tick_at:
            self._tick_at = deadline
            self._loop.at(deadline, self._tick)

    def _tick(self) -> None:
        if self.running:
            self._feed(Tick())

    def _begin(self, ship: ShipRound) -> None:
        counts = {
            Round.CONTROL: 1,
            Round.PARAMS: self._scenario.param_buckets,
            Round.BUFFERS: self._scenario.buffer_buckets,
        }
        self._serving = _Serving(ship=ship, count=counts[ship.round])
        self._pump()

    def _pump(self) -> None:
        """Send buckets as far as the flow control lets us."""
        serving = self._serving
        while serving is not None and self.running and serving.sent < serving.count:
            if serving.sent >= serving.received + MAX_AHEAD:
                return
            if self.calls.strike(self.ranks[0], Site.SHIP_BUCKET) or not self.running:
                return
            index = serving.sent
            serving.sent += 1
            self.calls.send_up(self._bucket(serving, index))

    def _bucket(self, serving: _Serving, index: int) -> Bucket:
        ship = serving.ship
        slots = [self.slots[rank] for rank in ship.ranks]
        if ship.round is Round.CONTROL:
            values: F32 | F64 = self._control(slots)
            mass, ranks = sum(slot.params_mass for slot in slots), ship.ranks
        else:
            buffers = ship.round is Round.BUFFERS
            movers = [slot for slot in slots if slot.mass(buffers=buffers) > 0]
            mass = sum(slot.mass(buffers=buffers) for slot in movers)
            ranks = tuple(slot.rank for slot in movers)
            values = self._subtotal(movers, index, buffers=buffers)
        frame = BucketFrame(
            cycle=ship.cycle,
            round=ship.round,
            index=index,
            count=serving.count,
            mass=float(mass),
            ranks=ranks,
            nbytes=values.nbytes,
            dtype="f64" if ship.round is Round.CONTROL else "f32",
        )
        return Bucket(frame, values)

    def _control(self, slots: list[TinySlot]) -> F64:
        world = self._scenario.world_size
        vector = np.zeros(TALLY_FIELDS * world, np.float64)
        for slot in slots:
            vector[slot.rank] = slot.n
            vector[world + slot.rank] = slot.samples
            vector[2 * world + slot.rank] = slot.declared
        return vector

    def _subtotal(self, movers: list[TinySlot], index: int, *, buffers: bool) -> F32:
        width = BUFFERS_A_BUCKET if buffers else PARAMS_A_BUCKET
        total = np.zeros(width if movers else 0, np.float32)
        if movers:
            part = slice(index * width, (index + 1) * width)
            terms = [
                Term(slot.values(buffers=buffers)[part], slot.mass(buffers=buffers))
                for slot in movers
            ]
            self._fold.combine(total, terms)
        return total

    def _place(self, round_: Round) -> tuple[F32, int]:
        if round_ is Round.BUFFERS:
            return self.buffers, BUFFERS_A_BUCKET
        return self.params, PARAMS_A_BUCKET

    def _serve_ends(self) -> None:
        """Serve a RoundEnd once every bucket of its round is here, or if the round failed."""
        while self.running and self._early_ends and self._serving is not None:
            end, serving = self._early_ends[0], self._serving
            ours = (end.cycle, end.round) == (serving.ship.cycle, serving.ship.round)
            failed = end.outcome is RoundOutcome.FAILED
            if ours and not failed and serving.received < serving.count:
                return
            if not ours and _place_in_run(end) > _place_in_run(serving.ship):
                return
            self._early_ends.popleft()
            if ours:
                self._serving = None
            self._feed(RoundEndReceived(end))
