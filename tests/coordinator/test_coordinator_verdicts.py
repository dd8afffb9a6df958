"""What verdicts do to a run: the anchor, the alert with its reason, the words that are kept."""

import math

import pytest
from coordinator_script import of
from paced_world import PacedWorld

from flodl_core.coordinator.cadence import Cadence, CadenceSettings
from flodl_core.coordinator.effects import RaiseAlert, RecordWindow
from flodl_core.elche.guards import (
    DivergenceReport,
    GuardTroubleError,
    LevelGuard,
    NudgeDown,
    Stable,
    SuppressGrowth,
)
from flodl_core.elche.meta_controller import LearningRate
from flodl_core.elche.report import WindowReport
from flodl_core.elche.settings import ElcheSettings
from flodl_core.elche.window_ledger import RankWindow
from flodl_core.ids import GuardKind, Rank
from flodl_core.messages.timing import LrUpdate


class World(PacedWorld):
    """A paced world whose ranks diverge as the test says, window by window."""

    def diverge(self, *values):
        for value in values:
            self._divergence = value
            self.run(1)
        return self

    def tell_lr(self, lr, *ranks):
        for rank in ranks or range(self.world):
            self.tell(rank, LrUpdate(rank=Rank(rank), lr=lr))
        return self

    def alerts(self, alert_class):
        return [a.detail for a in of(self.said, RaiseAlert) if a.alert_class == alert_class]

    @property
    def records(self):
        return of(self.said, RecordWindow)


def test_a_divergence_that_rises_turns_growth_off_and_says_why():
    world = World((10, 20), 30_000, sync_s=0.2).diverge(0.01, 0.02, 0.06)
    reason = "divergence rose three cycles in a row (0.01, 0.02, 0.06) and is above 0.05"
    assert world.elche.last_verdict == f"suppress growth: {reason}"
    assert world.elche.verdict_by == "level"
    assert not world.elche.growth_enabled
    assert world.alerts("drift") == [f"windows do not grow (level): {reason}"]
    assert world.records[-1].verdict == world.elche.last_verdict
    # the longer it lasts the less is new
    world.diverge(0.07)
    assert len(world.alerts("drift")) == 1


def test_a_run_of_such_verdicts_shortens_the_window_and_says_why():
    world = World((10, 20), 30_000, sync_s=0.005).diverge(*[0.01] * 5)
    assert world.elche.anchor == 10
    world.diverge(0.02, 0.06, 0.07, 0.08)
    assert world.elche.phase == "stable"
    assert world.elche.anchor == 5
    assert world.elche.verdict_by == "meta-controller"
    assert world.elche.last_verdict.startswith("nudge down by 0.5: 3 averages in a row")
    assert "the anchor shrank from 10 to 5 batches (meta-controller)" in world.alerts("drift")[-1]
    assert "0.08" in world.alerts("drift")[-1]


def test_a_fall_of_the_learning_rate_shortens_the_window():
    world = World((10, 20), 30_000).tell_lr(0.1).diverge(*[0.01] * 3)
    world.tell_lr(0.01).diverge(0.01)
    assert world.elche.anchor == 5
    assert world.alerts("drift") == [
        "the anchor shrank from 10 to 5 batches (meta-controller): "
        "the learning rate fell from 0.1 to 0.01"
    ]
    world.diverge(*[0.01] * 3)
    assert world.elche.anchor == 5


def test_without_the_controller_a_fall_of_the_learning_rate_changes_nothing():
    world = World((10, 20), 30_000, cadence={"meta": False}).tell_lr(0.1).diverge(0.01, 0.01)
    world.tell_lr(0.01).diverge(0.01)
    assert world.elche.anchor == 10
    assert world.alerts("drift") == []


def test_the_learning_rate_is_that_of_the_lowest_alive_rank():
    world = World((10, 10, 20), 30_000).tell_lr(0.1, 0).tell_lr(0.5, 1, 2).diverge(0.01, 0.01)
    world.tell_lr(0.05, 1, 2).diverge(0.01)
    assert world.elche.anchor == 10
    world.kill(0)
    # another rank's rate is a new beginning, no fall
    world.diverge(0.01)
    assert world.elche.anchor == 10
    world.tell_lr(0.01, 1).diverge(0.01)
    assert world.elche.anchor == 5


def test_the_guard_on_growth_halves_the_window_while_divergence_explodes():
    world = World((10, 20), 30_000, cadence={"guard": GuardKind.GROWTH, "meta": False})
    world.diverge(0.01, 0.04, 0.16, 0.64)
    # rank 0 does 20 batches a window from the second on: ln 4 / 20 = 6.9 % a batch
    assert world.elche.verdict_by == "growth"
    assert world.elche.last_verdict.startswith("nudge down by 0.5: divergence grows by")
    assert world.elche.anchor == 5


class Failing:
    """A guard that fails as it is told to, and counts how often it was asked."""

    def __init__(self, says):
        self.says, self.name, self.history, self.asked = says, "lab.guards:Failing", (), 0

    def review(self, report):
        self.asked += 1
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def restore(self, history):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (ValueError("no idea"), "it raised ValueError: no idea"),
        (math.nan, "it returned nan"),
        (NudgeDown(math.nan, "why"), "it returned NudgeDown(factor=nan"),
        ("stable", "it returned 'stable'"),
    ],
)
def test_a_custom_guard_that_fails_is_named_once_and_the_run_goes_on(says, words):
    guard = Failing(says)
    world = World((10, 20), 600, cadence={"custom_guard": guard}).diverge(*[0.01] * 6)
    assert guard.asked == 6
    assert world.elche.guard == "lab.guards:Failing"
    assert world.elche.guard_failures == 6
    assert world.elche.last_verdict == "stable"
    (alert,) = world.alerts("guard_failed")
    assert alert.startswith(f"guard lab.guards:Failing: {words}")
    assert alert.endswith("such a cycle counts as stable and the run goes on")
    world.run()
    assert world.positions() == list(range(1200))


def test_a_guard_that_is_gone_is_told_of_again_and_asked_no_more():
    guard = Failing(ValueError("no idea"))
    world = World((10, 20), 600, cadence={"custom_guard": guard}).diverge(0.01, 0.01)
    guard.says = GuardTroubleError("it gave no answer in 10 s", is_final=True)
    world.diverge(*[0.01] * 4)
    assert (guard.asked, world.elche.guard_failures) == (3, 3)
    assert world.elche.last_verdict == "stable"
    assert world.alerts("guard_failed")[1:] == [
        "guard lab.guards:Failing: it gave no answer in 10 s; it is asked no more: every cycle "
        "counts as stable and the run goes on"
    ]
    world.run()
    assert world.positions() == list(range(1200))


def test_the_meta_controller_speaks_on_after_the_guard_is_gone():
    gone = Failing(GuardTroubleError("its process ended", is_final=True))
    world = World((10, 20), 30_000, cadence={"custom_guard": gone}).tell_lr(0.1).diverge(0.01)
    world.diverge(0.01, 0.01).tell_lr(0.01).diverge(0.01)
    assert (world.elche.anchor, world.elche.verdict_by) == (5, "meta-controller")


def test_a_custom_guard_is_heard():
    world = World((10, 20), 30_000, cadence={"custom_guard": Failing(NudgeDown(0.5, "mine"))})
    world.diverge(0.01)
    assert world.elche.anchor == 5
    assert world.elche.last_verdict == "nudge down by 0.5: mine"
    assert world.alerts("drift") == [
        "the anchor shrank from 10 to 5 batches (lab.guards:Failing): mine"
    ]


def test_shares_of_late_are_told():
    world = World((10, 30), 30_000).diverge(*[0.01] * 3)
    assert world.elche.recent_shares == pytest.approx((0.75, 0.25), abs=0.01)
    world.kill(1)
    assert world.elche.recent_shares == (1.0, 0.0)


# restoring


def cadence(**settings) -> Cadence:
    return Cadence(CadenceSettings(**settings), (Rank(0), Rank(1)))


def close(one: Cadence, largest: float, *, lr: float | None = None):
    rows = [
        RankWindow(
            rank=Rank(rank),
            batches=10,
            wall_ms=100.0,
            first_ms=10.0,
            delivered_ms=90.0,
            delivered_batches=9,
        )
        for rank in range(2)
    ]
    rate = LearningRate(Rank(0), lr) if lr is not None else None
    return one.close_window(
        WindowReport(rows=rows, sync_ms=1.0),
        DivergenceReport(divergences={Rank(0): largest}, n_batches={Rank(0): 10}),
        rate=rate,
    )


def test_a_restored_cadence_knows_what_its_guard_knew():
    saved = cadence()
    for value in (0.01, 0.02):
        close(saved, value)
    restored = cadence()
    assert restored.restore(saved.record())
    close(restored, 0.06)
    assert isinstance(restored.balancer.last_verdict, SuppressGrowth)


def test_the_history_of_another_guard_is_not_taken_up():
    saved = cadence()
    for value in (0.01, 0.02):
        close(saved, value)
    restored = cadence(custom_guard=Named("other"))
    assert restored.restore(saved.record())
    assert isinstance(restored.balancer.last_verdict, Stable | None)
    assert restored.judge.history == ()


class Named(LevelGuard):
    """The level guard by another name."""

    def __init__(self, name):
        super().__init__()
        self._name = name

    @property
    def name(self):
        return self._name


def test_a_cadence_of_another_world_is_measured_anew():
    three = Cadence(CadenceSettings(), (Rank(0), Rank(1), Rank(2)))
    assert not three.restore(cadence().record())


@pytest.mark.parametrize("guard", list(GuardKind))
def test_every_guard_of_ours_has_its_name(guard):
    assert cadence(guard=guard).guard_name == guard.value


def test_growth_that_is_off_is_told_once_a_run():
    one = cadence(elche=ElcheSettings(), meta=False)
    told = []
    for value in (0.1, 0.2, 0.3, 0.4, *[0.1] * 5, 0.2, 0.3):
        told.append([alert.alert_class for alert in close(one, value)])
    assert [index for index, classes in enumerate(told) if classes == ["drift"]] == [2]
