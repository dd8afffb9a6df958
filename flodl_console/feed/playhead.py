"""Where a playback stands and what it was asked to do.

What it is: position, speed, pause, and the index of the document that is shown.
What it is not: a clock or a reader; the player moves it and reads what it points at.
Who drives it: `feed.player`.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from flodl_core.units import Seconds

SLOWEST: Final = 0.25
FASTEST: Final = 64.0
SHORTEST_S: Final = 0.05
"""Real seconds between two documents at least: twenty a second."""
LONGEST_S: Final = 1.0
"""Real seconds between two reports of the position at most."""


class Playhead:
    """A position in a list of instants.

    Attributes:
        position_s: seconds since the run began.
        speed: recorded seconds a real second.
        is_paused: whether it stands.
    """

    def __init__(self, times: Sequence[Seconds], length_s: Seconds, *, begin_s: Seconds) -> None:
        self.speed = 1.0
        self.is_paused = False
        self.length_s = length_s
        self._times = list(dict.fromkeys(times))
        self._has_jumped = False
        self.position_s = self._clamped(begin_s)

    @property
    def index(self) -> int:
        """Which document is shown; -1 before the first."""
        return bisect_right(self._times, self.position_s) - 1

    @property
    def shown_at_s(self) -> Seconds | None:
        """When the document that is shown was recorded; None before the first."""
        return self._times[self.index] if self.index >= 0 else None

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows."""
        return self.position_s >= self.length_s

    def seek(self, position_s: Seconds) -> None:
        """Jump; what is out of range is clamped."""
        self.position_s = self._clamped(position_s)
        self._has_jumped = True

    def step(self, records: int) -> None:
        """Move by so many documents and pause."""
        self.is_paused = True
        if not self._times:
            return
        index = min(max(self.index + records, 0), len(self._times) - 1)
        target_s = self._clamped(self._times[index])
        self._has_jumped = self._has_jumped or target_s < self.position_s
        self.position_s = target_s

    def take_jump(self) -> bool:
        """Return whether it jumped, or went backwards, since this was asked last."""
        has_jumped, self._has_jumped = self._has_jumped, False
        return has_jumped

    def set_speed(self, speed: float) -> None:
        """Set the speed; what is out of range is clamped."""
        self.speed = min(max(speed, SLOWEST), FASTEST)

    def resume(self) -> None:
        """Go on; from the beginning where nothing follows."""
        self.is_paused = False
        if self.is_at_end:
            self.seek(0.0)

    def wait_s(self) -> Seconds:
        """Return how many real seconds to wait before the next move."""
        index = self.index + 1
        due_s = self._times[index] if index < len(self._times) else self.length_s
        gap_s = (due_s - self.position_s) / self.speed
        return min(max(gap_s, SHORTEST_S), LONGEST_S)

    def advance(self, real_s: Seconds) -> None:
        """Move on by real seconds at the speed; pauses at the end."""
        self.position_s = self._clamped(self.position_s + real_s * self.speed)
        self.is_paused = self.is_paused or self.is_at_end

    def _clamped(self, position_s: Seconds) -> Seconds:
        return min(max(position_s, 0.0), self.length_s)
