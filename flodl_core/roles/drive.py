"""The loop that feeds a machine: events in their order, ticks when they are due.

The only loop of its kind. It knows no event and no effect; it measures how late
its ticks were, because a scheduler that wakes late is the first sign of a
starved process.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import anyio

from flodl_core.machines import Tick
from flodl_core.net.clock import now
from flodl_core.roles.mailbox import Mailbox
from flodl_core.units import Milliseconds, Seconds

EventT_contra = TypeVar("EventT_contra", contravariant=True)
EffectT_co = TypeVar("EffectT_co", covariant=True)
EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")

_KEPT_TICKS = 2048
_EVENTS_A_TURN = 256


class Machine(Protocol[EventT_contra, EffectT_co]):
    """Memory plus rules."""

    def handle(self, event: EventT_contra | Tick, now: Seconds) -> Sequence[EffectT_co]:
        """Take an event in; return what is to be done, in order."""
        ...

    def deadline(self) -> Seconds | None:
        """Return when a Tick is due next."""
        ...


@dataclass(frozen=True, slots=True)
class TickLateness:
    """How late the ticks of the last minutes were."""

    ticks: int
    p99_ms: Milliseconds
    max_ms: Milliseconds


class Driver(Generic[EventT, EffectT]):
    """Feeds one machine from one mailbox."""

    def __init__(
        self,
        machine: Machine[EventT, EffectT],
        mailbox: Mailbox[EventT],
        perform: Callable[[EffectT], None],
    ) -> None:
        self._machine = machine
        self._mailbox = mailbox
        self._perform = perform
        self._late_s: deque[Seconds] = deque(maxlen=_KEPT_TICKS)
        self._is_over = False

    def stop(self) -> None:
        """End `run` after the effects of the current event."""
        self._is_over = True

    async def run(self) -> None:
        """Feed the machine until `stop`; every effect is performed in its order."""
        while not self._is_over:
            due = self._machine.deadline()
            instant = now()
            if due is not None and due <= instant:
                self._late_s.append(instant - due)
                self._feed(Tick())
                await anyio.lowlevel.checkpoint()
                continue
            wait_s = math.inf if due is None else due - instant
            with anyio.move_on_after(wait_s):
                event = await self._mailbox.receive()
                self._take(event)

    def _take(self, event: EventT) -> None:
        """Feed this event and those that wait behind it, but never past a due tick for long."""
        self._feed(event)
        for _ in range(_EVENTS_A_TURN):
            following = None if self._is_over else self._mailbox.pop()
            if following is None:
                return
            self._feed(following)

    def _feed(self, event: EventT | Tick) -> None:
        for effect in self._machine.handle(event, now()):
            self._perform(effect)

    def lateness(self) -> TickLateness:
        """Return how late ticks were served."""
        late = sorted(self._late_s)
        if not late:
            return TickLateness(0, 0.0, 0.0)
        p99 = late[min(len(late) - 1, math.floor(0.99 * len(late)))]
        return TickLateness(len(late), 1000 * p99, 1000 * late[-1])
