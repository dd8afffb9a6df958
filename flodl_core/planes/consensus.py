"""The consensus at the root: the last committed one, and the one being formed beside it.

Parameters, buffers and the velocity of an outer optimizer, each on two sides
(`two_sides`). A save pins the committed sides; the root waits before it forms into a
pinned one.

The root's thread forms and commits; a save begins and ends in any thread.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from flodl_core.ids import Cycle, Round
from flodl_core.messages.job import Geometry
from flodl_core.planes.round_plan import RoundPlan
from flodl_core.planes.segment import F32
from flodl_core.planes.staging import Staging
from flodl_core.planes.two_sides import TwoSides
from flodl_core.planes.velocity import OuterState, Velocity


class CommittedView:
    """The committed values of one version, held still until released.

    Use it as a context, or call `release`; the root may have to wait for it.

    Attributes:
        version: the cycle that committed them.
        params: the parameter region, f32, read-only.
        buffers: the buffer region, f32, read-only.
        outer: of the outer optimizer; None if there is none that keeps anything.
    """

    def __init__(
        self,
        version: int,
        params: F32,
        buffers: F32,
        *,
        outer: OuterState | None = None,
        on_release: Callable[[], None],
    ) -> None:
        self.version = version
        self.params = _read_only(params)
        self.buffers = _read_only(buffers)
        self.outer = outer
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


@dataclass(frozen=True, slots=True)
class Regions:
    """Where a round is formed, and what it is formed from.

    Attributes:
        forming: gets the values of the round.
        committed: the last committed values.
        before: the outer velocity so far; None if the round is not stepped.
        after: gets the new velocity, likewise.
    """

    forming: F32
    committed: F32
    before: F32 | None = None
    after: F32 | None = None


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a run begins with where it is not what rank 0 has.

    Attributes:
        regions: parameters and buffers, which the initial broadcast brings to everybody.
        outer: of the outer optimizer; None if it begins anew.
    """

    regions: Mapping[Round, F32] = field(default_factory=dict)
    outer: OuterState | None = None


class Consensus:
    """Committed and forming values, with the saves that hold the former still.

    Attributes:
        staging: the segment that both lie in.
    """

    def __init__(
        self,
        staging: Staging,
        geometry: Geometry,
        *,
        on_unpinned: Callable[[], None],
        velocity: Velocity | None = None,
    ) -> None:
        """Use both sides of `staging`.

        Args:
            staging: of two sides.
            geometry: of the run.
            on_unpinned: called when a save has ended.
            velocity: of the outer optimizer, if it has one.
        """
        self.staging = staging
        self._on_unpinned = on_unpinned
        self._velocity = velocity
        self._lock = threading.Lock()
        self._version: Cycle | None = None
        self._regions = {
            Round.PARAMS: TwoSides((staging.params_on(0), staging.params_on(1)), geometry.params),
            Round.BUFFERS: TwoSides(
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

    def regions(self, plan: RoundPlan) -> Regions:
        """Return where the round is formed, and from what."""
        values = self._regions[plan.round]
        forming, committed = values.sides[values.forming], values.sides[values.committed]
        if self._velocity is None or not self._velocity.steps(plan):
            return Regions(forming, committed)
        return Regions(forming, committed, self._velocity.before, self._velocity.after)

    def may_form(self, round_: Round) -> bool:
        """Return whether no save holds what the round is formed in."""
        with self._lock:
            if not self._regions[round_].is_free:
                return False
            is_params = round_ is Round.PARAMS
            return self._velocity is None or not is_params or self._velocity.values.is_free

    def prepare(self, plan: RoundPlan) -> None:
        """Before the first bucket: bring values that the round does not cover along."""
        self._regions[plan.round].prepare(plan)
        if self._velocity is not None:
            self._velocity.prepare(plan)

    def commit(self, plan: RoundPlan) -> None:
        """Make what was formed the committed values of this kind, for ranks to read."""
        region = self._regions[plan.round]
        side = region.commit(plan)
        if self._velocity is not None:
            self._velocity.commit(plan, region.sides[side])
        if plan.round is Round.PARAMS:
            self.staging.commit_params(side)
        else:
            self.staging.commit_buffers(side)

    def finish(self, cycle: Cycle) -> None:
        """After the last round of a cycle that counts: saves may have it."""
        with self._lock:
            self._version = cycle
            for region in self._regions.values():
                region.saved = region.committed
            if self._velocity is not None:
                self._velocity.finish()

    def take_back(self) -> None:
        """After the last round of a cycle that does not count: form over what it committed.

        What saves may have stays where it is. Ranks go on reading what they were told of.
        """
        for region in self._regions.values():
            region.committed = region.saved
        if self._velocity is not None:
            self._velocity.take_back()

    def begin_save(self, version: int) -> CommittedView | None:
        """Hold the committed values still, if they are those of `version`.

        Returns:
            The values of the last whole commit that is not later than `version`, or None if
            nothing is committed yet or a later cycle has committed already.
        """
        with self._lock:
            if self._version is None or self._version > version:
                return None
            held = [(values, values.saved) for values in self._pinned()]
            for values, side in held:
                values.pins[side] += 1
            params, buffers, *_ = (values.sides[side] for values, side in held)
            return CommittedView(
                self._version,
                params,
                buffers,
                outer=self._velocity.saved_state() if self._velocity is not None else None,
                on_release=lambda: self._unpin(held),
            )

    def _pinned(self) -> Iterator[TwoSides]:
        """Yield what a save holds still."""
        yield from self._regions.values()
        if self._velocity is not None:
            yield self._velocity.values

    def _unpin(self, held: list[tuple[TwoSides, int]]) -> None:
        with self._lock:
            for values, side in held:
                values.pins[side] -= 1
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
