"""How fast each rank is at an instant, and what a window of batches comes to.

What it is: eras, between which nothing changes, and the plan of a window in one.
What it is not: the course of the run; `demo.schedule` strings windows together.
Who drives it: `demo.schedule`.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from flodl_console.demo.script import Loss, Script, Silence, Slow
from flodl_core.units import Milliseconds, Seconds

LATE_FACTOR: Final = 1.5
MAX_SPEED_RATIO: Final = 64.0


@dataclass(frozen=True, slots=True)
class Era:
    """A stretch of time in which the ranks' speeds stay."""

    from_s: Seconds
    true_ms: tuple[Milliseconds, ...]
    """What a batch takes."""
    known_ms: tuple[Milliseconds, ...]
    """What the counts are made from."""
    alive: tuple[bool, ...]
    batches_per_s: float
    """Of all alive ranks together, if nothing but the batches took time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A window: batches dealt, batches done, and how long that takes."""

    counts: tuple[int, ...]
    done: tuple[int, ...]
    """0 for a rank that is gone at the end of the window."""
    batches: int
    compute_s: Seconds
    is_cut: bool
    """Whether a late rank was cut short."""


class Pace:
    """The eras of a script."""

    def __init__(self, script: Script) -> None:
        self._usual = tuple(rank.ms_per_batch for rank in script.cohort.ranks)
        self._lost = script.lost_at_s
        self._slow = tuple(fault for fault in script.faults if isinstance(fault, Slow))
        self._starts = sorted({0.0, *self._changes(script)})
        self._eras = [self._era(at_s) for at_s in self._starts]
        self._plans: dict[tuple[int, int, int], Plan] = {}

    def at(self, at_s: Seconds) -> Era:
        """Return the era of an instant."""
        return self._eras[self._index(at_s)]

    def anchor_rank(self, at_s: Seconds) -> int:
        """Return the slowest alive rank, as far as the counts know."""
        era = self.at(at_s)
        alive = [rank for rank, is_alive in enumerate(era.alive) if is_alive]
        return max(alive, key=lambda rank: (era.known_ms[rank], -rank))

    def plan(self, start_s: Seconds, anchor: int) -> Plan:
        """Return the window that begins at an instant, the slowest rank doing `anchor` batches."""
        start = self._index(start_s)
        first = self._planned(start, start, anchor)
        end = self._index(start_s + first.compute_s)
        return first if end == start else self._planned(start, end, anchor)

    def _planned(self, start: int, end: int, anchor: int) -> Plan:
        key = (start, end, anchor)
        if key not in self._plans:
            self._plans[key] = self._make_plan(self._eras[start], self._eras[end], anchor)
        return self._plans[key]

    def _make_plan(self, start: Era, end: Era, anchor: int) -> Plan:
        slow_ms = max(ms for ms, alive in zip(start.known_ms, start.alive, strict=True) if alive)
        counts = tuple(
            max(1, round(anchor * min(slow_ms / ms, MAX_SPEED_RATIO))) if alive else 0
            for ms, alive in zip(start.known_ms, start.alive, strict=True)
        )
        wanted_ms = max(n * ms for n, ms in zip(counts, end.true_ms, strict=True))
        limit_ms = LATE_FACTOR * anchor * slow_ms
        compute_ms = min(wanted_ms, limit_ms)
        done = tuple(
            min(n, math.floor(compute_ms / ms + 1e-9)) if alive else 0
            for n, ms, alive in zip(counts, end.true_ms, end.alive, strict=True)
        )
        return Plan(counts, done, sum(done), compute_ms / 1000.0, wanted_ms > limit_ms)

    def _index(self, at_s: Seconds) -> int:
        return bisect_right(self._starts, at_s) - 1

    def _era(self, at_s: Seconds) -> Era:
        ranks = range(len(self._usual))
        true_ms = tuple(self._ms(rank, at_s, delayed=False) for rank in ranks)
        alive = tuple(at_s < lost for lost in self._lost)
        return Era(
            from_s=at_s,
            true_ms=true_ms,
            known_ms=tuple(self._ms(rank, at_s, delayed=True) for rank in ranks),
            alive=alive,
            batches_per_s=sum(1000.0 / true_ms[rank] for rank in ranks if alive[rank]),
        )

    def _ms(self, rank: int, at_s: Seconds, *, delayed: bool) -> Milliseconds:
        ms = self._usual[rank]
        for fault in self._slow:
            delay_s = fault.noticed_after_s if delayed else 0.0
            if fault.rank == rank and fault.from_s + delay_s <= at_s < fault.until_s + delay_s:
                ms *= fault.factor
        return ms

    def _changes(self, script: Script) -> list[Seconds]:
        times = [fault.at_s for fault in script.faults if isinstance(fault, Loss)]
        times += [fault.until_s for fault in script.faults if isinstance(fault, Silence)]
        for fault in self._slow:
            later_s = fault.noticed_after_s
            times += [fault.from_s, fault.from_s + later_s]
            times += [fault.until_s, fault.until_s + later_s]
        return times
