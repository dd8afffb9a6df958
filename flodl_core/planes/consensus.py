"""The consensus at the root: the last committed one, and the one being formed beside it.

```
side 0   | committed |   ── commit ──▶   | forming   |
side 1   | forming   |                   | committed |
```

A commit names the other side; nothing is copied. Values that a round does not cover
(frozen parameters) are carried to the forming side once, not each round. A save pins
the committed sides; the root waits before it forms into a pinned one.

The root's thread forms and commits; a save begins and ends in any thread.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import numpy as np

from flodl_core.ids import Cycle, Round
from flodl_core.messages.job import Geometry, Segment
from flodl_core.planes.round_plan import RoundPlan
from flodl_core.planes.segment import F32
from flodl_core.planes.staging import Staging

_NEVER: Final = -1
_UNKNOWN: Final = -2
"""Stamps of segments that hold no cycle's values: zeros, or a round that did not commit."""


class CommittedView:
    """The committed values of one version, held still until released.

    Use it as a context, or call `release`; the root may have to wait for it.

    Attributes:
        version: the cycle that committed them.
        params: the parameter region, f32, read-only.
        buffers: the buffer region, f32, read-only.
    """

    def __init__(
        self, version: int, params: F32, buffers: F32, *, on_release: Callable[[], None]
    ) -> None:
        self.version = version
        self.params = _read_only(params)
        self.buffers = _read_only(buffers)
        self._on_release: Callable[[], None] | None = on_release

    def release(self) -> None:
        """Let the root write over these values again; harmless if called twice."""
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class _Region:
    """The two sides of the parameters, or of the buffers."""

    def __init__(self, sides: tuple[F32, F32], segments: tuple[Segment, ...]) -> None:
        self.sides = sides
        self.committed = 0
        self.saved = 0
        self.pins = [0, 0]
        self.has_committed = False
        self._segments = segments
        self._stamps = [[_NEVER] * len(segments), [_NEVER] * len(segments)]

    @property
    def forming(self) -> int:
        return 1 - self.committed

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


class Consensus:
    """Committed and forming values, with the saves that hold the former still.

    Attributes:
        staging: the segment that both lie in.
    """

    def __init__(
        self, staging: Staging, geometry: Geometry, *, on_unpinned: Callable[[], None]
    ) -> None:
        """Use both sides of `staging`; `on_unpinned` is called when a save has ended."""
        self.staging = staging
        self._on_unpinned = on_unpinned
        self._lock = threading.Lock()
        self._version: Cycle | None = None
        self._regions = {
            Round.PARAMS: _Region((staging.params_on(0), staging.params_on(1)), geometry.params),
            Round.BUFFERS: _Region(
                (staging.buffers_on(0), staging.buffers_on(1)), geometry.buffers
            ),
        }

    @property
    def version(self) -> Cycle | None:
        """The last cycle that committed, whole; None before the first."""
        return self._version

    def has_committed(self, round_: Round) -> bool:
        """Return whether a round of this kind has committed."""
        return self._regions[round_].has_committed

    def forming(self, round_: Round) -> F32:
        """Return the region that the round is formed in."""
        region = self._regions[round_]
        return region.sides[region.forming]

    def committed(self, round_: Round) -> F32:
        """Return the region of the last committed round of this kind."""
        region = self._regions[round_]
        return region.sides[region.committed]

    def may_form(self, round_: Round) -> bool:
        """Return whether no save holds the forming side."""
        region = self._regions[round_]
        with self._lock:
            return region.pins[region.forming] == 0

    def prepare(self, plan: RoundPlan) -> None:
        """Before the first bucket: bring values that the round does not cover along."""
        self._regions[plan.round].prepare(plan)

    def commit(self, plan: RoundPlan) -> None:
        """Make what was formed the committed values of this kind, for ranks to read."""
        side = self._regions[plan.round].commit(plan)
        if plan.round is Round.PARAMS:
            self.staging.commit_params(side)
        else:
            self.staging.commit_buffers(side)

    def finish(self, cycle: Cycle) -> None:
        """After the last round of a cycle whose params round committed: saves may have it."""
        with self._lock:
            self._version = cycle
            for region in self._regions.values():
                region.saved = region.committed

    def begin_save(self, version: int) -> CommittedView | None:
        """Hold the committed values still, if they are those of `version`.

        Returns:
            The values of the last whole commit that is not later than `version`, or None if
            nothing is committed yet or a later cycle has committed already.
        """
        with self._lock:
            if self._version is None or self._version > version:
                return None
            held = [(region, region.saved) for region in self._regions.values()]
            for region, side in held:
                region.pins[side] += 1
            params, buffers = (region.sides[side] for region, side in held)
            return CommittedView(
                self._version, params, buffers, on_release=lambda: self._unpin(held)
            )

    def _unpin(self, held: list[tuple[_Region, int]]) -> None:
        with self._lock:
            for region, side in held:
                region.pins[side] -= 1
        self._on_unpinned()

    def close(self) -> None:
        """Forget the regions."""
        with self._lock:
            self._version = None
        self._regions.clear()


def _read_only(values: F32) -> F32:
    view = values.view()
    view.flags.writeable = False
    return view
