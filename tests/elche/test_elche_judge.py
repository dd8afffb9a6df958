"""The seam of verdicts: who wins, and what becomes of a guard that fails."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.guards import (
    DivergenceReport,
    GuardTroubleError,
    LevelGuard,
    NudgeDown,
    Stable,
    SuppressGrowth,
)
from flodl_core.elche.judge import Judge, check_verdict, word_verdict
from flodl_core.elche.meta_controller import LearningRate
from flodl_core.elche.record import ElchePhase

SUPPRESS = SuppressGrowth("it rises")


class Scripted:
    """A guard that says what it is told to; an exception it raises."""

    def __init__(self, *says, name="mine", history=()):
        self.says, self.name, self.history, self.taken = list(says), name, history, None

    def review(self, report):
        said = self.says.pop(0)
        if isinstance(said, BaseException):
            raise said
        return said

    def restore(self, history):
        self.taken = history


class Broken:
    """A guard of which nothing works."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise ValueError("no words")


def review(judge: Judge, lr: float | None = None, *, phase=ElchePhase.STABLE):
    rate = LearningRate(0, lr) if lr is not None else None
    return judge.review(DivergenceReport(), anchor=10, phase=phase, rate=rate)


@pytest.mark.parametrize("verdict", [Stable(), SUPPRESS, NudgeDown(0.25, "far apart")])
def test_a_calm_controller_leaves_the_guards_verdict_as_it_is(verdict):
    found = review(Judge(Scripted(verdict)))
    assert (found.verdict, found.by, found.trouble) == (verdict, "mine", "")


def test_a_nudge_beats_suppression_and_stable():
    for said in (Stable(), SUPPRESS):
        judge = Judge(Scripted(Stable(), said))
        review(judge, 0.1)
        found = review(judge, 0.01)
        assert found.verdict == NudgeDown(0.5, "the learning rate fell from 0.1 to 0.01")
        assert found.by == "meta-controller"


def test_two_nudges_multiply_and_both_reasons_are_told():
    judge = Judge(Scripted(Stable(), NudgeDown(0.6, "far apart")))
    review(judge, 0.1)
    found = review(judge, 0.01)
    assert found.by == "mine and meta-controller"
    assert isinstance(found.verdict, NudgeDown)
    assert found.verdict.factor == pytest.approx(0.3)
    assert found.verdict.reason == "far apart; the learning rate fell from 0.1 to 0.01"


def test_two_nudges_together_stay_above_a_tenth():
    judge = Judge(Scripted(Stable(), NudgeDown(0.1, "far apart")))
    review(judge, 0.1)
    assert review(judge, 0.01).verdict.factor == 0.1


def test_without_the_controller_the_guard_has_the_only_word():
    judge = Judge(Scripted(Stable(), SUPPRESS), has_meta=False)
    review(judge, 0.1)
    assert review(judge, 0.01).verdict == SUPPRESS


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        math.nan,
        "stable",
        Stable,
        NudgeDown(math.nan, "why"),
        NudgeDown(math.inf, "why"),
        NudgeDown("half", "why"),
        NudgeDown(True, "why"),
        NudgeDown(0.5, None),
        SuppressGrowth(3),
        Broken(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nonsense_is_stable_and_named(nonsense):
    judge = Judge(Scripted(nonsense, SUPPRESS))
    found = review(judge)
    assert found.verdict == Stable()
    assert found.trouble.startswith("it returned ")
    assert found.trouble.endswith("expected Stable, SuppressGrowth or NudgeDown")
    assert judge.failures == 1
    assert review(judge).verdict == SUPPRESS
    assert judge.failures == 1


@pytest.mark.parametrize("error", [ValueError("too\nfar"), SystemExit(3), ZeroDivisionError()])
def test_a_guard_that_raises_is_stable_and_named(error):
    judge = Judge(Scripted(error, error))
    found = review(judge)
    assert found.verdict == Stable()
    assert type(error).__name__ in found.trouble
    assert "\n" not in found.trouble
    review(judge)
    assert judge.failures == 2


def test_a_stop_by_the_user_is_no_failure_of_the_guard():
    with pytest.raises(KeyboardInterrupt):
        review(Judge(Scripted(KeyboardInterrupt())))


def test_a_factor_out_of_range_is_brought_into_it():
    assert check_verdict(NudgeDown(7, "why")) == (NudgeDown(1.0, "why"), "")
    assert check_verdict(NudgeDown(-1.0, "why")) == (NudgeDown(0.1, "why"), "")


def test_a_reason_is_one_line_of_bounded_length():
    verdict, trouble = check_verdict(SuppressGrowth("a\nb " + "x" * 1000))
    assert trouble == ""
    assert verdict.reason.startswith("a b xxx")
    assert len(verdict.reason) == 300


def test_a_guard_of_which_nothing_works_harms_nobody():
    judge = Judge(Broken())
    judge.restore([1.0])
    assert judge.name == "Broken"
    assert judge.history == ()
    assert review(judge).verdict == Stable()


def test_history_goes_both_ways():
    guard = Scripted(history=[1, 2.5])
    judge = Judge(guard)
    judge.restore(iter([3.0]))
    assert guard.taken == (3.0,)
    assert judge.history == (1.0, 2.5)
    assert Judge(Scripted(history=["x"])).history == ()
    assert Judge(Scripted(history=[math.nan])).history == ()


def test_verdicts_have_words():
    assert word_verdict(None) is None
    assert word_verdict(Stable()) == "stable"
    assert word_verdict(SUPPRESS) == "suppress growth: it rises"
    assert word_verdict(NudgeDown(0.35, "why")) == "nudge down by 0.35: why"


def test_a_run_of_failures_is_no_run_of_verdicts():
    judge = Judge(Scripted(*[ValueError()] * 6))
    assert {review(judge).by for _ in range(6)} == {"mine"}


@pytest.mark.slow
@given(st.lists(st.floats(0, 2), max_size=15), st.booleans())
def test_the_level_guard_is_heard_as_it_speaks(largest, has_meta):
    alone, judge = LevelGuard(), Judge(LevelGuard(), has_meta=has_meta)
    for value in largest:
        report = DivergenceReport(divergences={0: value})
        own = alone.review(report)
        found = judge.review(report, anchor=10, phase=ElchePhase.WARMUP)
        assert found.verdict == own or isinstance(found.verdict, NudgeDown)
        assert found.verdict == own or has_meta


def test_judging_needs_no_tensor_library():
    assert "flodl_core.elche.judge" in sys.modules
    assert not any(name == "torch" for name in vars(sys.modules["flodl_core.elche.judge"]))


class Gone(Scripted):
    """A guard whose process has ended."""

    def review(self, report):
        raise GuardTroubleError("its process ended", is_final=True)

    def restore(self, history):
        raise GuardTroubleError("its process is lost", is_final=True)


def test_a_guard_that_is_gone_is_told_once_and_restored_in_vain():
    judge = Judge(Gone())
    judge.restore([1.0])
    first, *later = (review(judge) for _ in range(4))
    assert (first.verdict, first.trouble, first.ends_guard) == (Stable(), "its process ended", True)
    assert {(one.verdict, one.trouble, one.ends_guard) for one in later} == {(Stable(), "", False)}
    assert judge.failures == 1


def test_trouble_that_passes_leaves_the_guard_its_next_word():
    judge = Judge(Scripted(GuardTroubleError("it raised"), SUPPRESS))
    assert review(judge).trouble == "it raised"
    assert review(judge).verdict == SUPPRESS
