"""What is kept of each cycle, and evictions by an operator."""

import pytest
from coordinator_script import (
    DeclareRankDead,
    EvictRank,
    RaiseAlert,
    Script,
    codes,
    control,
    ends,
    of,
    sent,
    tally,
)

from flodl_core.coordinator.effects import Announce, RecordWindow
from flodl_core.coordinator.events import EvictRequested, StopKind, StopRequested
from flodl_core.ids import ExitCode, Rank

TWO_HOSTS = (("red", 2), ("blue", 1))


def evict(rank, who="operator at 127.0.0.1"):
    return EvictRequested(Rank(rank), who)


def in_training(**numbers):
    return Script(TWO_HOSTS, n_samples=24, **numbers).start()


# windows


def test_a_committed_cycle_is_kept_with_what_it_took_and_what_each_rank_did():
    script = in_training()
    script.now += 2.0
    for rank in range(3):
        script.batch(rank, loss=1.0 + rank, batch_ms=10.0 * (rank + 1))
    for rank in range(3):
        script.ready(rank, 1)
    script.now += 0.25
    script.rounds(1, [tally(rank) for rank in range(3)])
    said = [effect for rank in range(3) for effect in script.ack(rank, 1, divergence=0.1 * rank)]
    (kept,) = of(said, RecordWindow)
    assert (kept.cycle, kept.version, kept.outcome, kept.epoch) == (1, 1, "committed", 0)
    assert (kept.samples_done, kept.samples_total, kept.global_step) == (6, 24, 3)
    assert kept.sync_ms == pytest.approx(250.0)
    assert kept.window_ms == pytest.approx(2250.0)
    assert kept.loss == pytest.approx(2.0)
    assert kept.ms_per_batch == (10.0, 20.0, 30.0)
    assert kept.weights == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert kept.divergences == pytest.approx((0.0, 0.1, 0.2))
    assert kept.batch_counts == (1, 1, 1)


def test_the_initial_broadcast_is_no_window():
    script = Script(TWO_HOSTS)
    script.forget = lambda: None
    script.start()
    assert not of(script.said, RecordWindow)
    script.cycle(1)
    assert [kept.cycle for kept in of(script.said, RecordWindow)] == [1]


def test_a_cycle_without_a_finite_contribution_is_kept_as_unrealized():
    script = in_training()
    for rank in range(3):
        script.batch(rank)
    for rank in range(3):
        script.ready(rank, 1, n=0)
    script.rounds(1, [tally(rank, n=0, declared=True) for rank in range(3)])
    for rank in range(3):
        script.ack(rank, 1, outcome="unrealized")
    (kept,) = of(script.said, RecordWindow)
    assert (kept.outcome, kept.version, kept.samples_done) == ("unrealized", 0, 0)


def test_a_cycle_that_the_end_of_the_run_leaves_is_kept_as_failed():
    script = in_training()
    script.cycle(1)
    for rank in range(3):
        script.batch(rank)
    script.ready(0, 2)
    script.handle(StopRequested(StopKind.NOW, ExitCode.NOT_SAVED, "SIGTERM"))
    kept = of(script.said, RecordWindow)
    assert [(one.cycle, one.outcome) for one in kept] == [(1, "committed"), (2, "failed")]
    assert (kept[1].sync_ms, kept[1].window_ms) == (None, None)


def test_a_rank_that_is_gone_has_no_weight_and_no_batches_in_what_is_kept():
    script = in_training()
    script.cycle(1)
    script.lose(2)
    script.forget()
    script.cycle(2, ranks=(0, 1))
    (kept,) = of(script.said, RecordWindow)
    assert kept.batch_counts == (1, 1, 0)
    assert kept.weights == (0.5, 0.5, None)


# evictions


def test_an_evicted_rank_is_ended_and_its_samples_go_to_the_others():
    script = in_training()
    said = script.handle(evict(2))
    assert of(said, EvictRank) == [EvictRank(Rank(2), "by operator at 127.0.0.1")]
    assert [effect.rank for effect in of(said, DeclareRankDead)] == [2]
    (alert,) = of(said, RaiseAlert)
    assert (alert.alert_class, alert.rank) == ("rank_lost", 2)
    assert "evicted: by operator at 127.0.0.1" in alert.detail
    given = sent(said, control.ExtendPartition)
    assert sum(part.size for _, part in given) == 8
    assert script.machine.view(script.now).ranks[2].state == "lost"


def test_an_eviction_is_announced_with_who_asked():
    said = in_training().handle(evict(1, "operator at 10.0.0.9"))
    (told,) = [one for one in of(said, Announce) if one.topic == "evict_requested"]
    assert told.text == "operator at 10.0.0.9 evicts rank 1 (cpu:1 on red)"


def test_the_others_finish_a_cycle_that_the_evicted_rank_was_in():
    script = in_training()
    for rank in range(3):
        script.batch(rank)
    script.ready(0, 1)
    script.ready(1, 1)
    script.handle(evict(2))
    script.rounds(1, [tally(0), tally(1)])
    script.ack(0, 1)
    script.ack(1, 1)
    assert [kept.cycle for kept in of(script.said, RecordWindow)] == [1]
    assert ends(script.said) is None


@pytest.mark.parametrize(
    ("prepare", "rank", "reason"),
    [
        (lambda script: None, 3, "there is no rank 3 in this run; its ranks are 0 to 2"),
        (lambda script: None, -1, "there is no rank -1 in this run"),
        (lambda script: script.lose(2), 2, "rank 2 is lost already: signal 9"),
        (lambda script: script.exiting(2), 2, "rank 2 takes no part any more: exited"),
        (lambda script: (script.lose(0), script.lose(1)), 2, "rank 2 is the last one"),
        (
            lambda script: script.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM")),
            2,
            "the run is not training: stopping",
        ),
    ],
)
def test_an_eviction_that_cannot_be_is_refused_with_the_reason(prepare, rank, reason):
    script = in_training()
    prepare(script)
    assert reason in script.machine.refuse_evict(Rank(rank))
    said = script.handle(evict(rank))
    assert "evict_refused" in codes(said)
    assert not of(said, EvictRank)


def test_nobody_is_evicted_before_the_first_commit():
    script = Script(TWO_HOSTS).rendezvous()
    assert script.machine.refuse_evict(Rank(1)) == "the run is not training: initial"
