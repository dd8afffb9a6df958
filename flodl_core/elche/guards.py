"""Whether the model still follows: what the ranks' divergences say of a longer window.

What it is: the verdicts, the protocol of whoever gives them, and two guards; a third is
`elche.growth_guard`. Divergence is ‖pre − post‖ / ‖post‖ of a rank in a cycle.
What it is not: a scheduler; the balancer applies verdicts.
Who drives it: `elche.judge`, once a finished cycle.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Protocol, TypeAlias

from flodl_core.ids import Rank

LEVEL_THRESHOLD: Final = 0.05
"""Where adoption overwrites the parameters."""
EASGD_LEVEL_THRESHOLD: Final = 0.3
"""Where ranks blend toward the consensus, so that they stay apart."""
_RING: Final = 5
_RISING: Final = 3


@dataclass(frozen=True, slots=True)
class Stable:
    """Nothing speaks against the window; a waiting growth is committed."""


@dataclass(frozen=True, slots=True)
class SuppressGrowth:
    """A waiting growth is dropped and the next ones are not made.

    Attributes:
        reason: one clause, shown wherever the verdict is.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class NudgeDown:
    """As SuppressGrowth, and the anchor shrinks.

    Attributes:
        factor: of the anchor, 0.1 to 1.
        reason: one clause, shown wherever the verdict is.
    """

    factor: float
    reason: str


Verdict: TypeAlias = Stable | SuppressGrowth | NudgeDown


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceReport:
    """What a committed cycle says of the ranks.

    Attributes:
        divergences: of the ranks that have one; each finite.
        n_batches: realized batches of each rank in the window.
    """

    divergences: Mapping[Rank, float] = field(default_factory=dict)
    n_batches: Mapping[Rank, int] = field(default_factory=dict)

    @property
    def largest_divergence(self) -> float | None:
        """The largest finite divergence; None if no rank has one."""
        return max((d for d in self.divergences.values() if math.isfinite(d)), default=None)

    @property
    def most_batches(self) -> int:
        """Realized batches of the rank that did most; 0 if none did any."""
        return max(self.n_batches.values(), default=0)

    @property
    def total_batches(self) -> int:
        """Realized batches of all ranks."""
        return sum(self.n_batches.values())


class GuardTroubleError(Exception):
    """Raised by who asks a guard that works elsewhere: there is no opinion, and why.

    Attributes:
        words: one clause, such as `it raised ValueError: no idea`.
        is_final: whether the guard is to be asked no more.
    """

    def __init__(self, words: str, *, is_final: bool = False) -> None:
        super().__init__(words)
        self.words = words
        self.is_final = is_final


class ConvergenceGuard(Protocol):
    """Whoever judges whether windows may grow; a user's own is one of these too.

    One of ours works where it is called. A user's own has a process of its own in a run, and
    whoever stands for it in the launcher is one of these as well.
    """

    @property
    def name(self) -> str:
        """One word for state document and records."""

    @property
    def history(self) -> tuple[float, ...]:
        """What a checkpoint must keep, oldest first; finite numbers."""

    def review(self, report: DivergenceReport) -> Verdict:
        """Judge a finished cycle; called once a cycle, in order."""

    def restore(self, history: Iterable[float]) -> None:
        """Take up what a checkpoint kept."""


class NoGuard:
    """Everything is stable."""

    @property
    def name(self) -> str:
        """`none`."""
        return "none"

    @property
    def history(self) -> tuple[float, ...]:
        """Nothing."""
        return ()

    def review(self, report: DivergenceReport) -> Verdict:
        """Return Stable."""
        return Stable()

    def restore(self, history: Iterable[float]) -> None:
        """Keep nothing."""


class LevelGuard:
    """Suppresses growth while the divergence rises and is high; never nudges."""

    def __init__(self, threshold: float = LEVEL_THRESHOLD) -> None:
        """Watch for a divergence above `threshold`."""
        self._threshold = threshold
        self._ring: deque[float] = deque(maxlen=_RING)

    @property
    def name(self) -> str:
        """`level`."""
        return "level"

    @property
    def history(self) -> tuple[float, ...]:
        """The last five largest divergences, oldest first."""
        return tuple(self._ring)

    def review(self, report: DivergenceReport) -> Verdict:
        """Return SuppressGrowth if the last three strictly rise and the last is too high.

        A cycle without a divergence is no sample and Stable.
        """
        largest = report.largest_divergence
        if largest is None:
            return Stable()
        self._ring.append(largest)
        last = list(self._ring)[-_RISING:]
        rising = len(last) == _RISING and all(a < b for a, b in pairwise(last))
        if not rising or largest <= self._threshold:
            return Stable()
        steps = ", ".join(f"{value:.3g}" for value in last)
        return SuppressGrowth(
            f"divergence rose three cycles in a row ({steps}) and is above {self._threshold:g}"
        )

    def restore(self, history: Iterable[float]) -> None:
        """Take up the last five finite values."""
        self._ring = deque((value for value in history if math.isfinite(value)), maxlen=_RING)
