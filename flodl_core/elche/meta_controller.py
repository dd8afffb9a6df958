"""The second opinion on a window: what the learning rate and a run of verdicts say.

What it is: two rules that shorten the window. A *cliff*: the learning rate fell by more than
30 % since the last cycle, so that what was a fit window for large steps is none now. A
*conviction*: the guard spoke against longer windows in each of the last cycles. How much
shorter depends on the phase, eased where the anchor has been falling anyway and sharpened
where it has been rising.
What it is not: a guard; it sees no divergence.
Who drives it: `elche.judge`, once a finished cycle, after the guard.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from flodl_core.elche.guards import NudgeDown, Stable, Verdict
from flodl_core.elche.record import ElchePhase
from flodl_core.ids import Rank

CLIFF_DROP: Final = 0.3
"""By more than this part the learning rate must fall at once."""
CLIFF_BASE: Final = 0.5
CONVICTION_BASE: Final[Mapping[ElchePhase, float]] = MappingProxyType(
    {ElchePhase.WARMUP: 0.3, ElchePhase.STABLE: 0.5, ElchePhase.MATURE: 0.7}
)
CONVICTION_VERDICTS: Final[Mapping[ElchePhase, int]] = MappingProxyType(
    {ElchePhase.WARMUP: 5, ElchePhase.STABLE: 3, ElchePhase.MATURE: 2}
)
"""Verdicts in a row, none of them Stable, that convince."""
LEAST_FACTOR: Final = 0.1
MOST_FACTOR: Final = 0.95
_ANCHOR_WINDOW: Final = 5


@dataclass(frozen=True, slots=True)
class LearningRate:
    """The learning rate of the cohort, as one rank tells it."""

    rank: Rank
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleFacts:
    """What the controller looks at.

    Attributes:
        anchor: batches a window, before this cycle's verdict.
        rate: of the lowest alive rank that told one; None if none did.
        verdict: the guard's.
    """

    anchor: int
    phase: ElchePhase
    rate: LearningRate | None
    verdict: Verdict


class MetaController:
    """The memory of the last rates, anchors and verdicts."""

    def __init__(self) -> None:
        self._anchors: deque[int] = deque(maxlen=_ANCHOR_WINDOW)
        self._rate: LearningRate | None = None
        self._against = 0

    def review(self, facts: CycleFacts) -> NudgeDown | None:
        """Take in a finished cycle; return what to do about it, None for nothing.

        A rate is compared with the one before it of the same rank. After a conviction the
        count of verdicts begins anew, so that one bad stretch is answered once.
        """
        self._anchors.append(facts.anchor)
        self._against = 0 if isinstance(facts.verdict, Stable) else self._against + 1
        before, self._rate = self._rate, facts.rate or self._rate
        if facts.phase not in CONVICTION_BASE:
            return None
        factors: list[float] = []
        reasons: list[str] = []
        if _fell(before, facts.rate):
            assert before is not None
            assert facts.rate is not None
            factors.append(self._eased(CLIFF_BASE))
            reasons.append(
                f"the learning rate fell from {before.value:.3g} to {facts.rate.value:.3g}"
            )
        if self._against >= CONVICTION_VERDICTS[facts.phase]:
            factors.append(self._eased(CONVICTION_BASE[facts.phase]))
            reasons.append(
                f"{self._against} averages in a row spoke against longer windows, "
                f"last: {_reason_of(facts.verdict)}"
            )
            self._against = 0
        if not factors:
            return None
        product = factors[0] if len(factors) == 1 else factors[0] * factors[1]
        return NudgeDown(_clamped(product), "; ".join(reasons))

    @property
    def trend(self) -> float:
        """How far the anchor lies above its mean of the last five cycles, as a part of it."""
        if len(self._anchors) < 2:
            return 0.0
        mean = sum(self._anchors) / len(self._anchors)
        return (self._anchors[-1] - mean) / mean

    def _eased(self, base: float) -> float:
        return _clamped(base - (1 - base) * self.trend)


def _fell(before: LearningRate | None, now: LearningRate | None) -> bool:
    if before is None or now is None or before.rank != now.rank or before.value <= 0:
        return False
    return (before.value - now.value) / before.value > CLIFF_DROP


def _clamped(factor: float) -> float:
    return min(max(factor, LEAST_FACTOR), MOST_FACTOR)


def _reason_of(verdict: Verdict) -> str:
    return "" if isinstance(verdict, Stable) else verdict.reason
