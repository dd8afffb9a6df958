"""How many samples a second are trained, of late: by the cohort and by each rank.

What it is: the commits of the last half minute, and of two more if windows are longer. Many
that come close together are kept as one, so that the half minute is whole at any pace.
What it is not: what a rank has trained in all; the rank's record knows that.
Who drives it: `averaging` adds each commit, `view` asks.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from flodl_core.ids import Rank
from flodl_core.units import Seconds

RATE_S: Final[Seconds] = 30.0
"""How far a rate looks back, where windows are not longer."""
_SLOT_S: Final[Seconds] = 0.25
_KEPT: Final = int(RATE_S / _SLOT_S) + 2
_FEWEST: Final = 2


@dataclass(slots=True)
class _Slot:
    """Commits that came close together.

    Attributes:
        since: of the first.
        at: of the last.
        trained: samples of each rank up to then, since the run began here.
    """

    since: Seconds
    at: Seconds
    trained: Counter[Rank]


@dataclass(slots=True)
class CommitRates:
    """The commits of late."""

    _slots: deque[_Slot] = field(init=False, default_factory=lambda: deque(maxlen=_KEPT))

    def add(self, now: Seconds, samples: Mapping[Rank, int]) -> None:
        """Take a commit.

        Args:
            now: when.
            samples: what became trained by it, by rank.
        """
        newest = self._slots[-1] if self._slots else None
        if newest is None or now - newest.since >= _SLOT_S:
            before = newest.trained if newest is not None else Counter()
            newest = _Slot(now, now, Counter(before))
            self._slots.append(newest)
        newest.at = now
        newest.trained.update(samples)

    def rate(self, ranks: Iterable[Rank], now: Seconds) -> float | None:
        """Return the samples a second of these ranks together; None before the second commit.

        It is that of whole windows. In one that lasts longer than the one before it falls.
        """
        if len(self._slots) < _FEWEST:
            return None
        before, last = self._slots[-_FEWEST], self._slots[-1]
        first = next((slot for slot in self._slots if now - slot.at <= RATE_S), last)
        if first is last:
            first = before
        usual_s = max(last.at - before.at, _SLOT_S)
        span_s = (last.at if now - last.at <= usual_s else now) - first.at
        if span_s <= 0:
            return None
        return sum(last.trained[rank] - first.trained[rank] for rank in ranks) / span_s
