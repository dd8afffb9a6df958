"""One region twice: the side that was committed, and the side that is being formed.

```
side 0   | committed |   ── commit ──▶   | forming   |
side 1   | forming   |                   | committed |
```

A commit names the other side; nothing is copied. What a round does not cover is carried
to the forming side once, not each round: each side remembers, segment by segment, which
cycle its values are of.

What it is: the bookkeeping of parameters, of buffers and of an outer velocity alike.
What it is not: a lock; pins are counted under the consensus's own.
Who drives it: `consensus.Consensus`.
"""

from typing import Final

import numpy as np

from flodl_core.messages.job import Segment
from flodl_core.planes.round_plan import RoundPlan
from flodl_core.planes.segment import F32

_NEVER: Final = -1
_UNKNOWN: Final = -2
"""Stamps of segments that hold no cycle's values: what a side began with, or a round that did
not commit."""


class TwoSides:
    """The two sides of one kind of values.

    Attributes:
        sides: both regions, f32, of equal length.
        committed: which side holds the last committed values.
        saved: which side holds those of the last cycle that committed as a whole.
        pins: how many saves hold each side still.
        has_committed: whether a round of this kind has committed.
    """

    def __init__(self, sides: tuple[F32, F32], segments: tuple[Segment, ...]) -> None:
        """Begin with equal values on both sides, or with none that anybody reads."""
        self.sides = sides
        self.committed = 0
        self.saved = 0
        self.pins = [0, 0]
        self.has_committed = False
        self._segments = segments
        self._stamps = [[_NEVER] * len(segments), [_NEVER] * len(segments)]

    @property
    def forming(self) -> int:
        """The side that the next round is formed in."""
        return 1 - self.committed

    @property
    def is_free(self) -> bool:
        """Whether no save holds the forming side."""
        return self.pins[self.forming] == 0

    def prepare(self, plan: RoundPlan) -> None:
        """Bring what the round does not cover to the forming side, where it differs."""
        source, target = self.sides[self.committed], self.sides[self.forming]
        known, stale = self._stamps[self.committed], self._stamps[self.forming]
        for index, segment in enumerate(self._segments):
            if plan.active[index]:
                stale[index] = _UNKNOWN
            elif stale[index] != known[index]:
                end = segment.offset + segment.numel
                np.copyto(target[segment.offset : end], source[segment.offset : end])
                stale[index] = known[index]

    def commit(self, plan: RoundPlan) -> int:
        """Name the forming side the committed one; return it."""
        stamps = self._stamps[self.forming]
        for index, active in enumerate(plan.active):
            if active:
                stamps[index] = plan.cycle
        self.committed = self.forming
        self.has_committed = True
        return self.committed
