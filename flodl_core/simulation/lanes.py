"""One direction of a connection: order kept, delays seeded, ends as a transport ends.

What it is: a first-in-first-out lane with a random delay an item. A lane that is
closed delivers what was sent and then says so, as a socket does whose writer died.
One that is cut loses a tail of what is under way. One that is silenced delivers
nothing more and never says so, as a network does that drops packets.
What it is not: a wire; with `through_codec` each message is encoded and read back.
Who drives it: ranks, hosts, root and launcher of a simulated world.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from flodl_core.simulation.virtual_loop import VirtualLoop
from flodl_core.units import Seconds
from flodl_core.wire.codec import decode_untrusted, encode

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delays:
    """How long an item is under way: usually at most `usual_s`, sometimes `rare_s`."""

    usual_s: Seconds
    rare_s: Seconds
    rare_share: float

    def draw(self, rng: random.Random) -> Seconds:
        """One delay."""
        longest = self.rare_s if rng.random() < self.rare_share else self.usual_s
        return rng.random() * longest


def through_codec(item: T) -> T:
    """What arrives of a message at the other end of a wire."""
    kind, payload = encode(item)
    arrived = decode_untrusted(kind, payload)
    assert type(arrived) is type(item), f"{item} arrived as {arrived}"
    return arrived


class Lane(Generic[T]):
    """From one sender to one receiver.

    Args:
        loop: the run's clock.
        rng: of this lane alone.
        delays: how long an item is under way.
        deliver: takes each item in the order of sending.
        on_end: called once, after the last item, when the lane was closed or cut.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        rng: random.Random,
        *,
        delays: Delays,
        deliver: Callable[[T], None],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop, self._rng, self._delays = loop, rng, delays
        self._deliver, self._on_end = deliver, on_end
        self._latest: Seconds = 0.0
        self._sent = 0
        self._lost_from: int | None = None
        self._open = True
        self._silent = False

    def send(self, item: T) -> None:
        """Put an item on its way; after the end it is lost."""
        if not self._open:
            return
        number = self._sent
        self._sent += 1
        self._loop.at(self._when(), lambda: self._arrive(number, item))

    def close(self) -> None:
        """The sender is gone: everything under way arrives, then the end."""
        if self._open:
            self._open = False
            self._loop.at(self._when(), self._end)

    def cut(self) -> None:
        """The connection broke: of what is under way a tail is lost, then the end."""
        if self._open:
            self._open = False
            self._lost_from = self._rng.randint(max(0, self._sent - 8), self._sent)
            self._loop.at(self._when(), self._end)

    def silence(self) -> None:
        """The network drops everything from now on, also what is under way."""
        self._silent = True
        self._open = False

    def _when(self) -> Seconds:
        self._latest = max(self._latest, self._loop.now + self._delays.draw(self._rng))
        return self._latest

    def _arrive(self, number: int, item: T) -> None:
        lost = self._lost_from is not None and number >= self._lost_from
        if not self._silent and not lost:
            self._deliver(item)

    def _end(self) -> None:
        if not self._silent:
            self._on_end()
