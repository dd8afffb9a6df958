"""The one seam of verdicts: the guard speaks, then the meta-controller, and one verdict leaves.

What it is: the order of opinions and which of them wins, the check of what a guard returns,
and the words for both. A guard that raises, or returns what is no verdict, is counted and
taken for Stable: a run never ends for its guard. One that is gone for good is asked no more.
What it is not: an opinion, nor what follows from one; the balancer applies it.
Who drives it: `coordinator.cadence`, once a finished cycle.

    divergences ─▶ guard ─▶ meta-controller ─▶ NudgeDown beats SuppressGrowth beats Stable
"""

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar, assert_never

from flodl_core.elche.growth import LEAST_NUDGE
from flodl_core.elche.guards import (
    ConvergenceGuard,
    DivergenceReport,
    GuardTroubleError,
    NudgeDown,
    Stable,
    SuppressGrowth,
    Verdict,
)
from flodl_core.elche.meta_controller import CycleFacts, LearningRate, MetaController
from flodl_core.elche.record import ElchePhase
from flodl_core.errors import kind_of

_T = TypeVar("_T")
_MOST_WORDS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of the opinions of a cycle.

    Attributes:
        verdict: the one that counts.
        by: who gave it: the guard's name, `meta-controller`, or both.
        trouble: why the guard's own opinion is missing; empty if it is not, and once the
            guard is asked no more.
        ends_guard: whether the guard is asked no more from this cycle on.
    """

    verdict: Verdict
    by: str
    trouble: str = ""
    ends_guard: bool = False


class Judge:
    """A guard and, unless switched off, the meta-controller.

    Attributes:
        failures: cycles in which the guard raised or returned no verdict.
    """

    def __init__(self, guard: ConvergenceGuard, *, has_meta: bool = True) -> None:
        self._guard = guard
        self._meta = MetaController() if has_meta else None
        self._is_gone = False
        self.failures = 0

    @property
    def name(self) -> str:
        """One word for the guard."""
        name, _ = _attempt(lambda: self._guard.name)
        return name if isinstance(name, str) and name else type(self._guard).__name__

    @property
    def history(self) -> tuple[float, ...]:
        """What a checkpoint keeps of the guard; empty if the guard has nothing fit for it."""
        values, _ = _attempt(lambda: tuple(self._guard.history))
        fit = values is not None and all(_is_number(value) for value in values)
        return tuple(float(value) for value in values) if fit and values else ()

    def restore(self, history: Iterable[float]) -> None:
        """Hand the guard what a checkpoint kept; one that raises goes on without."""
        values = tuple(history)
        with suppress(GuardTroubleError):
            _attempt(lambda: self._guard.restore(values))

    def review(
        self,
        report: DivergenceReport,
        *,
        anchor: int,
        phase: ElchePhase,
        rate: LearningRate | None = None,
    ) -> Judgement:
        """Return the verdict on a finished cycle.

        Args:
            report: the cycle's divergences.
            anchor: batches a window, before the verdict.
            phase: how much is known of the cadence.
            rate: of learning, as the lowest alive rank told it.
        """
        own, trouble, ends = self._ask(report)
        second = None
        if self._meta is not None:
            facts = CycleFacts(anchor=anchor, phase=phase, rate=rate, verdict=own)
            second = self._meta.review(facts)
        verdict, by = own, self.name
        if second is not None and isinstance(own, NudgeDown):
            factor = max(LEAST_NUDGE, own.factor * second.factor)
            verdict = NudgeDown(factor, f"{own.reason}; {second.reason}")
            by = f"{self.name} and meta-controller"
        elif second is not None:
            verdict, by = second, "meta-controller"
        return Judgement(verdict=verdict, by=by, trouble=trouble, ends_guard=ends)

    def _ask(self, report: DivergenceReport) -> tuple[Verdict, str, bool]:
        """Return the guard's own verdict, why it is missing, and whether it is gone with that."""
        if self._is_gone:
            return Stable(), "", False
        try:
            given, trouble = _attempt(lambda: self._guard.review(report))
        except GuardTroubleError as error:
            self.failures += 1
            self._is_gone = error.is_final
            return Stable(), _one_line(error.words), error.is_final
        own, trouble = (Stable(), trouble) if trouble else check_verdict(given)
        self.failures += bool(trouble)
        return own, trouble, False


def check_verdict(given: object) -> tuple[Verdict, str]:
    """Return what a guard gave as a verdict, and why it is none; empty if it is one."""
    match given:
        case Stable():
            return given, ""
        case SuppressGrowth(reason) if isinstance(reason, str):
            return SuppressGrowth(_one_line(reason)), ""
        case NudgeDown(factor, reason) if isinstance(reason, str) and _is_number(factor):
            return NudgeDown(min(max(float(factor), LEAST_NUDGE), 1.0), _one_line(reason)), ""
        case _:
            said = f"it returned {_one_line(_repr(given))}"
            return Stable(), f"{said}; expected Stable, SuppressGrowth or NudgeDown"


def word_verdict(verdict: Verdict | None) -> str | None:
    """Return a verdict in words; None before the first."""
    match verdict:
        case None:
            return None
        case Stable():
            return "stable"
        case SuppressGrowth(reason):
            return f"suppress growth: {reason}"
        case NudgeDown(factor, reason):
            return f"nudge down by {factor:.3g}: {reason}"
        case _:
            assert_never(verdict)


def _attempt(deed: Callable[[], _T]) -> tuple[_T | None, str]:
    """Do what is not our own code; return what it gave, and what went wrong."""
    try:
        return deed(), ""
    except GuardTroubleError:
        raise
    except (Exception, SystemExit) as error:
        return None, f"it raised {_one_line(f'{type(error).__name__}: {error}')}"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return kind_of(value)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def _one_line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _MOST_WORDS else f"{words[: _MOST_WORDS - 1]}…"
