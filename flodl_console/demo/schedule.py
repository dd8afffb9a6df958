"""The windows of a scenario from first to last: when, how long, why so long.

What it is: the course of the averaging, worked out once: few numbers a window.
What it is not: what each rank did in it; that is asked for when it is shown.
Who drives it: `demo.recording`, once a scenario.

    start ── batches ── computed ── averaging ── end = start of the next
"""

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import Final

from flodl_console.demo.noise import spread
from flodl_console.demo.pace import Pace, Plan
from flodl_console.demo.script import Script, Silence, Stall, Unrest
from flodl_core.units import Milliseconds, Seconds

FIRST_ANCHOR: Final = 10
MAX_ANCHOR: Final = 1000
OVERHEAD_TARGET: Final = 0.05
STABLE_AFTER: Final = 5
MATURE_AFTER: Final = 20
FILL_MS: Final = 30.0
AFTER_LOSS_S: Final = 0.2
"""From the word that a host is lost to the end of the averaging that waited for it."""


@dataclass(frozen=True, slots=True)
class Window:
    """One averaging with the batches before it."""

    cycle: int
    start_s: Seconds
    computed_s: Seconds
    """When the last rank had done its batches."""
    end_s: Seconds
    """Infinite for one that never ends."""
    plan: Plan
    anchor: int
    anchor_rank: int
    overhead: float
    elche_phase: str
    verdict: str
    reason: str
    batches_before: int
    """Batches that all ranks had done when it began."""

    @property
    def sync_ms(self) -> Milliseconds:
        """From the last batch to the end."""
        return (self.end_s - self.computed_s) * 1000.0


class Schedule:
    """All windows of a script, the finished ones in `windows`.

    Attributes:
        windows: finished, oldest first.
        open_window: the one that was under way when training ended; None if none was.
        batches: done by all ranks in all finished windows.
    """

    def __init__(self, script: Script) -> None:
        self.windows: list[Window] = []
        self.open_window: Window | None = None
        self.batches = 0
        self.pace = Pace(script)
        self._script = script
        self._cadence = _Cadence()
        self._until_s = math.inf if script.trained_until_s is None else script.trained_until_s
        if script.trained_from_s is not None and script.cohort.ranks:
            self._fill(script.trained_from_s, min(self._until_s, script.length_s))
        self._ends = [window.end_s for window in self.windows]
        self._sums: list[tuple[int, tuple[int, ...]]] = []
        self._sum_up()

    def finished(self, at_s: Seconds) -> int:
        """Return how many windows have ended at an instant."""
        return bisect_right(self._ends, at_s)

    def under_way(self, at_s: Seconds) -> Window | None:
        """Return the window that is open at an instant; None if training is not on."""
        if at_s >= self._until_s:
            return None
        index = self.finished(at_s)
        window = self.windows[index] if index < len(self.windows) else self.open_window
        return window if window is not None and window.start_s <= at_s else None

    def batches_by_rank(self, finished: int) -> tuple[int, ...]:
        """Return each rank's batches in the first so many windows."""
        index = bisect_right(self._sums, finished, key=lambda row: row[0]) - 1
        if index < 0:
            return (0,) * len(self._script.cohort.ranks)
        since, before = self._sums[index]
        extra = finished - since
        if not extra:
            return before
        done = self.windows[since].plan.done
        return tuple(sum_ + extra * n for sum_, n in zip(before, done, strict=True))

    def _fill(self, start_s: Seconds, until_s: Seconds) -> None:
        now_s = start_s
        while now_s < until_s:
            window = self._window(now_s, len(self.windows) + 1)
            if window.end_s > until_s:
                self.open_window = window
                return
            self.windows.append(window)
            self.batches += window.plan.batches
            now_s = window.end_s

    def _window(self, start_s: Seconds, cycle: int) -> Window:
        cadence, seed = self._cadence, self._script.seed
        anchor, phase = cadence.anchor, cadence.phase
        anchor_rank = self.pace.anchor_rank(start_s)
        plan = self.pace.plan(start_s, anchor)
        computed_s = start_s + plan.compute_s * (1.0 + 0.015 * (1.0 + spread(seed, 7, cycle)))
        usual_ms = 70.0 + 8.0 * math.log2(len(self._script.cohort.ranks) + 1)
        sync_ms = usual_ms * (1.0 + 0.2 * spread(seed, 8, cycle))
        end_s = self._held_until(start_s, computed_s + sync_ms / 1000.0)
        slow_ms = self.pace.at(start_s).known_ms[anchor_rank]
        overhead = cadence.overhead(slow_ms, sync_ms + FILL_MS)
        verdict, reason = cadence.report(
            overhead, anchor_rank=anchor_rank, is_unrest=self._is_unrest(start_s)
        )
        return Window(
            cycle=cycle,
            start_s=start_s,
            computed_s=computed_s,
            end_s=end_s,
            plan=plan,
            anchor=anchor,
            anchor_rank=anchor_rank,
            overhead=overhead,
            elche_phase=phase,
            verdict=verdict,
            reason=reason,
            batches_before=self.batches,
        )

    def _held_until(self, start_s: Seconds, end_s: Seconds) -> Seconds:
        for fault in self._script.faults:
            if isinstance(fault, Stall) and start_s <= fault.from_s < end_s:
                return math.inf
            if isinstance(fault, Silence) and start_s <= fault.from_s < end_s:
                return fault.until_s + AFTER_LOSS_S
        return end_s

    def _is_unrest(self, at_s: Seconds) -> bool:
        return any(
            isinstance(fault, Unrest) and fault.from_s <= at_s < fault.until_s
            for fault in self._script.faults
        )

    def _sum_up(self) -> None:
        sums = (0,) * len(self._script.cohort.ranks)
        since, last = 0, None
        for index, window in enumerate(self.windows):
            if window.plan is last:
                continue
            if last is not None:
                sums = tuple(a + (index - since) * n for a, n in zip(sums, last.done, strict=True))
            self._sums.append((index, sums))
            since, last = index, window.plan


class _Cadence:
    """How the anchor grows: a short form of the real rules, with their words."""

    def __init__(self) -> None:
        self.anchor = FIRST_ANCHOR
        self._reports = 0
        self._costs_ms: deque[Milliseconds] = deque(maxlen=3)
        self._stable_to_go = 0

    @property
    def phase(self) -> str:
        """probe, warmup, stable or mature."""
        if self._reports >= MATURE_AFTER:
            return "mature"
        if self._reports >= STABLE_AFTER:
            return "stable"
        return "warmup" if self._reports else "probe"

    def overhead(self, slow_ms: Milliseconds, cost_ms: Milliseconds) -> float:
        """Take a window's cost; return averaging's part of it by the last three."""
        self._costs_ms.append(cost_ms)
        usual_ms = sorted(self._costs_ms)[len(self._costs_ms) // 2]
        return usual_ms / (self.anchor * slow_ms + usual_ms)

    def report(self, overhead: float, *, anchor_rank: int, is_unrest: bool) -> tuple[str, str]:
        """Finish a window; return the guard's verdict and the reason of the counts."""
        self._reports += 1
        takes = f"averaging takes {overhead:.1%} of a window, target {OVERHEAD_TARGET:.0%}"
        if is_unrest:
            self._stable_to_go = 5
            why = "divergence rose three cycles in a row and is above 0.05"
            return f"suppress growth: {why}", f"growth is off: {why}"
        if self._stable_to_go:
            self._stable_to_go -= 1
            return "stable", f"{takes}: growth is off for {self._stable_to_go} more stable cycles"
        margin = 2.0 if self._reports < STABLE_AFTER else 1.0
        if overhead <= margin * OVERHEAD_TARGET or self._reports == 1 or self.anchor >= MAX_ANCHOR:
            stays = f"the anchor stays at {self.anchor} batches of rank {anchor_rank}"
            return "stable", f"{takes}: {stays}"
        before = self.anchor
        grown = math.ceil(before * min(overhead / OVERHEAD_TARGET, 2.0))
        self.anchor = min(grown, MAX_ANCHOR)
        grew = f"the anchor grew from {before} to {self.anchor} batches of rank {anchor_rank}"
        return "stable", f"{takes}: {grew}"
