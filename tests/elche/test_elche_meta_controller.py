"""The meta-controller: cliffs of the learning rate and runs of verdicts, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.guards import NudgeDown, Stable, SuppressGrowth
from flodl_core.elche.meta_controller import CycleFacts, LearningRate, MetaController
from flodl_core.elche.record import ElchePhase

AGAINST = SuppressGrowth("it rises")


def facts(
    lr: float | None = None,
    *,
    anchor: int = 10,
    phase: ElchePhase = ElchePhase.STABLE,
    verdict=None,
    rank: int = 0,
) -> CycleFacts:
    rate = LearningRate(rank, lr) if lr is not None else None
    return CycleFacts(anchor=anchor, phase=phase, rate=rate, verdict=verdict or Stable())


@pytest.mark.parametrize(
    ("before", "after", "nudged"),
    [
        (0.1, 0.069, True),
        (1.0, 0.75, False),
        (0.1, 0.01, True),
        (0.1, 0.1, False),
        (0.01, 0.3, False),  # a rise is none of its business
        (0.0, 0.0, False),
        (-0.1, -0.2, False),
        (8.0, 5.625, False),  # 0.296875
        (8.0, 5.5, True),  # 0.3125
    ],
)
def test_a_fall_of_the_learning_rate_by_more_than_three_tenths_halves_the_window(
    before, after, nudged
):
    controller = MetaController()
    assert controller.review(facts(before)) is None
    verdict = controller.review(facts(after))
    assert (verdict is not None) is nudged
    if verdict is not None:
        assert verdict == NudgeDown(0.5, f"the learning rate fell from {before:.3g} to {after:.3g}")


def test_a_slow_decay_is_no_cliff():
    controller = MetaController()
    lr = 1.0
    for _ in range(40):
        assert controller.review(facts(lr)) is None
        lr *= 0.72


def test_a_rank_that_tells_no_rate_leaves_the_last_one_standing():
    controller = MetaController()
    controller.review(facts(0.1))
    assert controller.review(facts(None)) is None
    assert controller.review(facts(0.01)) is not None


def test_rates_of_two_ranks_are_not_compared():
    controller = MetaController()
    controller.review(facts(0.1, rank=0))
    assert controller.review(facts(0.01, rank=1)) is None
    assert controller.review(facts(0.001, rank=1)) is not None


@pytest.mark.parametrize(
    ("phase", "verdicts", "factor"),
    [(ElchePhase.WARMUP, 5, 0.3), (ElchePhase.STABLE, 3, 0.5), (ElchePhase.MATURE, 2, 0.7)],
)
def test_a_run_of_verdicts_convinces_sooner_the_more_is_known(phase, verdicts, factor):
    controller = MetaController()
    found = [controller.review(facts(phase=phase, verdict=AGAINST)) for _ in range(2 * verdicts)]
    nudge = NudgeDown(
        factor, f"{verdicts} averages in a row spoke against longer windows, last: it rises"
    )
    # after it has acted it counts from 0 again
    assert found == [*[None] * (verdicts - 1), nudge] * 2


def test_a_stable_verdict_ends_the_run():
    controller = MetaController()
    for verdict in (AGAINST, AGAINST, None, AGAINST, AGAINST):
        assert controller.review(facts(verdict=verdict)) is None
    assert controller.review(facts(verdict=NudgeDown(0.5, "fast"))) is not None


def test_both_rules_together_multiply():
    controller = MetaController()
    for _ in range(2):
        controller.review(facts(0.1, verdict=AGAINST))
    verdict = controller.review(facts(0.01, verdict=AGAINST))
    assert verdict is not None
    assert verdict.factor == pytest.approx(0.5 * 0.5)
    assert "learning rate" in verdict.reason
    assert "3 averages" in verdict.reason


def test_nothing_is_done_while_probing():
    controller = MetaController()
    for lr in (1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001):
        assert controller.review(facts(lr, phase=ElchePhase.PROBE, verdict=AGAINST)) is None


@pytest.mark.parametrize(
    ("anchors", "trend", "factor"),
    [
        ((10, 10), 0.0, 0.5),
        ((10, 30), 0.5, 0.25),  # mean 20: it rose, so the nudge is sharper
        ((30, 10), -0.5, 0.75),  # it fell by itself, so the nudge is milder
        ((1, 1, 1, 1, 96), 3.8, 0.1),  # mean 20
        ((96, 10, 10, 10, 10, 10), 0.0, 0.5),  # only five windows count
        ((10_000, 10_000, 10_000, 10_000, 1), -0.999875, 0.95),  # mean 8000.2
    ],
)
def test_the_trend_of_the_anchor_eases_the_nudge(anchors, trend, factor):
    controller = MetaController()
    *earlier, last = anchors
    for anchor in earlier:
        controller.review(facts(0.1, anchor=anchor))
    verdict = controller.review(facts(0.01, anchor=last))
    assert controller.trend == pytest.approx(trend, abs=1e-6)
    assert verdict is not None
    assert verdict.factor == pytest.approx(factor)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.integers(1, 1000),
            st.sampled_from(ElchePhase),
            st.none() | st.floats(0, 10),
            st.sampled_from([Stable(), AGAINST, NudgeDown(0.5, "fast")]),
        ),
        max_size=30,
    )
)
def test_a_nudge_is_always_between_a_tenth_and_nearly_nothing_and_has_a_reason(cycles):
    controller = MetaController()
    for anchor, phase, lr, verdict in cycles:
        found = controller.review(facts(lr, anchor=anchor, phase=phase, verdict=verdict))
        if found is not None:
            assert 0.1 <= found.factor <= 0.95
            assert found.reason
            assert phase is not ElchePhase.PROBE
