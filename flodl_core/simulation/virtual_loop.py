"""Virtual time: a heap of things to do, and a clock that jumps to the next one.

What it is: the only clock of a simulated run. Things due at one instant are done in
the order in which they were asked for, so a run is a function of its seed.
What it is not: a thread or a timer; nothing happens outside `run`.
Who drives it: `simulation.world`.
"""

import heapq
from collections.abc import Callable

from flodl_core.units import Seconds

Deed = Callable[[], None]


class VirtualLoop:
    """A deterministic event loop."""

    def __init__(self) -> None:
        self.now: Seconds = 0.0
        self.done = 0
        self._heap: list[tuple[Seconds, int, Deed]] = []
        self._asked = 0

    def at(self, when: Seconds, deed: Deed) -> None:
        """Do something at an instant, or now if that is past."""
        self._asked += 1
        heapq.heappush(self._heap, (max(when, self.now), self._asked, deed))

    def after(self, delay: Seconds, deed: Deed) -> None:
        """Do something after a delay."""
        self.at(self.now + delay, deed)

    def step(self) -> bool:
        """Do the next thing; False if there is none."""
        if not self._heap:
            return False
        when, _, deed = heapq.heappop(self._heap)
        self.now = when
        self.done += 1
        deed()
        return True

    @property
    def next_at(self) -> Seconds | None:
        """When the next thing is due."""
        return self._heap[0][0] if self._heap else None
