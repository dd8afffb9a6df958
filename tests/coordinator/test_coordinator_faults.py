"""Deaths, silence, stops, stalls and non-finite values, one message at a time."""

import math

import pytest
from coordinator_script import (
    DeclareRankDead,
    EvictRank,
    RaiseAlert,
    SaveBundle,
    Script,
    codes,
    control,
    ends,
    of,
    ranges,
    sent,
    tally,
)

from flodl_core.coordinator.effects import DropHost, RunFinished
from flodl_core.coordinator.events import HostStatsReported, RoundEnded, StopKind, StopRequested
from flodl_core.ids import RankPhase, Round, RoundOutcome
from flodl_core.ids import SyncOutcome as Sync
from flodl_core.messages.data import RankTally
from flodl_core.messages.join import HostStats
from flodl_core.messages.rendezvous import Role


def stop(kind=StopKind.SAVE, code=4):
    return StopRequested(kind, code, "SIGTERM")


def leave(script, *ranks):
    return [effect for rank in ranks for effect in script.exiting(rank)]


# deaths


def test_a_dead_ranks_samples_go_to_the_survivors_in_whole_batches():
    script = Script((("red", 3),), n_samples=18).start()
    said = script.lose(1)
    assert [alert.alert_class for alert in of(said, RaiseAlert)] == ["rank_lost"]
    assert [effect.rank for effect in of(said, DeclareRankDead)] == [1]
    given = sent(said, control.ExtendPartition)
    assert [(rank, part.offset, part.size) for rank, part in given] == [(0, 6, 4), (2, 10, 2)]
    assert all(part.epoch == 0 for _, part in given)


def test_a_rank_that_dies_after_its_mark_still_counts():
    script = Script((("red", 2),), n_samples=8).start()
    for rank in (0, 1):
        script.batch(rank)
    for rank in (0, 1):
        script.ready(rank, 1)
    said = script.lose(1)
    given = [(part.offset, part.size) for _, part in sent(said, control.ExtendPartition)]
    assert given == [(6, 2)]
    said = script.rounds(1, [tally(0), tally(1)])
    assert ranges(said) == {(0, 0, 2), (1, 4, 2)}
    assert sent(script.ack(0, 1), control.Update, 0)


def test_a_rank_that_dies_before_its_mark_is_known_keeps_all_in_limbo_until_the_round_ends():
    script = Script((("red", 2),), n_samples=8).start()
    for rank in (0, 1):
        script.batch(rank)
    script.ready(0, 1)
    assert not sent(script.lose(1), control.ExtendPartition)
    said = script.rounds(1, [tally(0), tally(1)])
    assert ranges(said) == {(0, 0, 2), (1, 4, 2)}
    assert sent(said, control.ExtendPartition, 0) == [
        control.ExtendPartition(epoch=0, offset=6, size=2)
    ]


def test_a_dead_rank_that_is_not_in_the_round_gives_everything_back():
    script = Script((("red", 2),), n_samples=8).start()
    for rank in (0, 1):
        script.batch(rank)
    script.ready(0, 1)
    script.lose(1)
    said = script.rounds(1, [tally(0)])
    given = sent(said, control.ExtendPartition, 0)
    assert [(part.offset, part.size) for part in given] == [(4, 4)]


def test_a_host_that_breaks_off_in_the_round_may_count_twice_and_it_is_said():
    script = Script((("red", 1), ("blue", 1)), n_samples=8).start()
    for rank in (0, 1):
        script.batch(rank)
    for rank in (0, 1):
        script.ready(rank, 1)
    said = script.rounds(1, [tally(0), tally(1)], accepted=(0,))
    assert [alert.alert_class for alert in of(said, RaiseAlert)] == ["partly_counted"]
    assert ranges(said) == {(0, 0, 2)}
    given = sent(script.lose(1, "the link of blue ended"), control.ExtendPartition, 0)
    assert [(part.offset, part.size) for part in given] == [(4, 4)]


def test_the_last_acknowledgement_may_be_a_death():
    script = Script((("red", 2),), n_samples=8).start()
    for rank in (0, 1):
        script.batch(rank)
    for rank in (0, 1):
        script.ready(rank, 1)
    script.rounds(1, [tally(0), tally(1)])
    script.ack(0, 1)
    assert sent(script.lose(1), control.Update, 0) == [control.Update(version=1, cycle=1)]


def test_the_death_of_the_blocker_opens_the_gate():
    script = Script((("red", 3),), n_samples=6).start()
    script.batch(0)
    script.batch(1)
    said = script.lose(2)
    assert sent(said, control.ExtendPartition, 0)
    assert sorted(rank for rank, _ in sent(said, control.RequestParams)) == [0, 1]


def test_a_second_death_of_a_rank_is_a_note():
    script = Script().start()
    script.lose(2)
    assert codes(script.lose(2)) == ["gone_already"]


def test_a_rank_whose_job_raised_is_lost_with_its_error():
    script = Script().start()
    said = script.exiting(2, error="ValueError: bad batch")
    assert "ValueError: bad batch" in of(said, RaiseAlert)[0].detail


def test_a_clean_exit_is_no_loss_but_the_samples_come_back():
    script = Script((("red", 2),), n_samples=8).start()
    said = script.exiting(1)
    assert not of(said, RaiseAlert)
    assert sent(said, control.ExtendPartition, 0)
    assert "exited_early" in codes(said)
    assert codes(script.lose(1, "exit code 0")) == ["gone_already"]


def test_no_survivor_saves_the_last_commit_and_fails_with_the_first_cause():
    script = Script((("red", 2),), n_samples=8).start()
    script.cycle(1)
    script.lose(1, "ValueError: bad batch")
    said = script.lose(0, "signal 9")
    save = of(said, SaveBundle)[0]
    assert (save.version, save.reason) == (1, "all_ranks_lost")
    end = ends(script.saved(1))
    assert end.exit_code == 1
    assert "rank 1 (cpu:1 on red): ValueError: bad batch" in end.detail


def test_all_lost_between_params_and_buffers_waits_for_the_whole_commit():
    script = Script((("red", 1),), n_samples=8, buffers=2).start()
    script.batch(0)
    script.ready(0, 1)
    script.end(1, Round.CONTROL, accepted=(0,), tallies=[tally(0)])
    script.end(1, Round.PARAMS, accepted=(0,), tallies=[tally(0)])
    assert not of(script.lose(0), SaveBundle)
    said = script.end(1, Round.BUFFERS, RoundOutcome.UNREALIZED, tallies=[tally(0)])
    assert of(said, SaveBundle)[0].version == 1


def test_a_commit_that_never_becomes_whole_is_waited_for_five_seconds_and_then_left_out():
    script = Script((("red", 1),), n_samples=8, buffers=2).start()
    script.cycle(1)
    script.batch(0)
    script.end(2, Round.CONTROL, accepted=(0,), tallies=[tally(0)])
    script.end(2, Round.PARAMS, accepted=(0,), tallies=[tally(0)])
    script.lose(0)
    script.forget()
    script.wait(4.9)
    assert not of(script.said, SaveBundle)
    script.wait(0.2)
    save = of(script.said, SaveBundle)[0]
    assert (save.version, save.facts.sync_round, save.facts.global_step) == (1, 1, 1)
    assert save.facts.samples_trained == 2
    assert [(part.offset, part.size) for part in save.facts.coverage[0].uncovered] == [(2, 6)]


def test_rounds_that_end_while_the_last_save_is_written_count_only_if_it_fails():
    script = Script((("red", 1),), n_samples=8).start()
    script.batch(0)
    script.ready(0, 1)
    script.end(1, Round.CONTROL, accepted=(0,), tallies=[tally(0)])
    assert of(script.lose(0), SaveBundle)[0].version == 0
    assert not ranges(script.end(1, Round.PARAMS, accepted=(0,), tallies=[tally(0)]))
    said = script.saved(0, error="the root holds version 1")
    assert ranges(said) == {(0, 0, 2)}
    save = of(said, SaveBundle)[0]
    assert (save.version, save.facts.samples_trained) == (1, 2)
    assert ends(script.saved(1)).exit_code == 1


def test_a_superseded_save_is_tried_again_a_second_later_if_the_news_is_not_here_yet():
    script = Script((("red", 1),), n_samples=8).start()
    script.batch(0)
    script.end(1, Round.CONTROL, accepted=(0,), tallies=[tally(0)])
    script.lose(0)
    assert not of(script.saved(0, error="the root holds version 1"), SaveBundle)
    script.forget()
    script.wait(1.1)
    assert of(script.said, SaveBundle)[0].version == 0


def test_max_failure_ends_the_run_with_a_save():
    script = Script((("red", 3),), settings={"max_failure": 2}).start()
    script.lose(1)
    said = script.lose(2)
    assert of(said, SaveBundle)[0].reason == "max_failure_exceeded"
    script.saved(0)
    assert ends(script.exiting(0)).exit_code == 1


# the beginning


def test_a_rank_that_ends_before_its_hello_fails_the_run_by_name():
    script = Script()
    script.hello(0)
    end = ends(script.lose(1, "exit code 1"))
    assert (end.exit_code, end.reason) == (1, "rendezvous_failed")
    assert "rank 1 (cpu:1 on red) ended before it said Hello: exit code 1" in end.detail


def test_a_rank_lost_after_its_hello_does_not_stop_the_others():
    script = Script()
    script.hello(2)
    assert ends(script.lose(2)) is None
    script.hello(1)
    assert {rank for rank, _ in sent(script.hello(0), Role)} == {0, 1}


def test_the_next_rank_generates_if_the_generator_dies():
    script = Script((("red", 1), ("blue", 2)), local="blue")
    for rank in range(3):
        script.hello(rank)
    roles = sent(script.lose(1), Role)
    assert [(rank, role.role) for rank, role in roles] == [(2, "generate")]


def test_missing_ranks_are_named_with_their_hosts_after_the_ceiling():
    script = Script()
    script.hello(0)
    script.forget()
    script.wait(119.0, beating=(0,))
    assert ends(script.said) is None
    script.wait(2.0, beating=(0,))
    end = ends(script.said)
    assert (end.exit_code, end.reason) == (1, "rendezvous_failed")
    assert "rank 1 on red; rank 2 on blue" in end.detail


def test_each_hello_restarts_the_ceiling():
    script = Script()
    script.tick()
    script.wait(100.0)
    script.hello(0)
    script.wait(100.0, beating=(0,))
    assert not script.machine.ended


def test_rank_0_lost_before_the_first_commit_fails_the_run():
    script = Script().rendezvous()
    end = ends(script.lose(0))
    assert end.reason == "initial_broadcast_failed"
    assert end.exit_code == 1


def test_a_broken_initial_broadcast_fails_the_run():
    for round_, outcome, accepted in (
        (Round.CONTROL, RoundOutcome.UNREALIZED, ()),
        (Round.PARAMS, RoundOutcome.COMMITTED, (1,)),
        (Round.PARAMS, RoundOutcome.UNREALIZED, ()),
        (Round.BUFFERS, RoundOutcome.UNREALIZED, ()),
    ):
        script = Script(buffers=2).rendezvous()
        tallies = [tally(0, samples=0), tally(1, n=0, samples=0)]
        for before in (Round.CONTROL, Round.PARAMS, Round.BUFFERS):
            if before is round_:
                break
            script.end(0, before, accepted=(0,), tallies=tallies)
        end = ends(script.end(0, round_, outcome, accepted, tallies))
        assert end.reason == "initial_broadcast_failed", round_


# silence and progress


def test_silence_above_the_ceiling_is_death_and_at_the_ceiling_is_not():
    script = Script((("red", 2),)).start()
    heard = script.now
    script.wait(29.0, beating=(0,))
    script.now = heard + 30.0
    script.tell(0, script.heartbeat(0))
    assert not of(script.tick(), DeclareRankDead)
    script.now = math.nextafter(heard + 30.0, math.inf)
    assert [effect.rank for effect in of(script.tick(), DeclareRankDead)] == [1]


def test_a_host_whose_ranks_fall_silent_together_is_dropped_and_its_link_named():
    script = Script((("red", 1), ("blue", 2))).start()
    script.forget()
    script.wait(31.0, beating=(0,))
    details = [alert.detail for alert in of(script.said, RaiseAlert)]
    assert all("its relay or link is down" in detail for detail in details)
    assert [effect.host for effect in of(script.said, DropHost)] == ["blue"]


def test_ranks_whose_last_words_came_a_beat_apart_fell_silent_together():
    script = Script((("red", 1), ("blue", 2))).start()
    script.wait(0.9, beating=(0, 2))
    script.tell(2, script.heartbeat(2))
    script.forget()
    script.wait(29.5, beating=(0,))
    assert [effect.rank for effect in of(script.said, DeclareRankDead)] == [1, 2]
    details = [alert.detail for alert in of(script.said, RaiseAlert)]
    assert all("like every rank of blue" in detail for detail in details)


def test_the_link_of_a_silent_host_is_named_though_one_of_its_ranks_still_burns():
    script = Script((("red", 1), ("blue", 2))).start()
    script.forget()
    for second in range(31):
        script.wait(1.0, beating=(0,))
        script.handle(HostStatsReported(HostStats(rank=2, cpu_s=float(second), state="R", rss=1)))
    (alert,) = of(script.said, RaiseAlert)
    assert "like every rank of blue: its relay or link is down" in alert.detail
    assert [effect.rank for effect in of(script.said, DeclareRankDead)] == [1]
    assert not of(script.said, DropHost)


def test_a_host_without_ranks_may_hold_up_a_cycle_only_for_a_while():
    script = Script((("red", 1), ("blue", 1)), settings={"host_drain_s": 10.0}).start()
    for rank in (0, 1):
        script.batch(rank)
    script.ready(1, 1)
    script.lose(1)
    script.forget()
    script.wait(9.0, beating=(0,))
    assert not of(script.said, DropHost)
    script.wait(2.0, beating=(0,))
    assert [effect.host for effect in of(script.said, DropHost)] == ["blue"]


def test_an_absence_of_the_launcher_is_nobodys_silence():
    script = Script().start()
    script.now += 500.0
    said = script.tick()
    assert codes(said) == ["own_absence"]
    assert not of(said, DeclareRankDead)
    script.wait(29.0)
    assert not of(script.said, DeclareRankDead)


def test_a_burning_rank_is_busy_until_its_word_is_stale():
    script = Script((("red", 2),)).start()
    script.forget()
    for second in range(60):
        script.wait(1.0, beating=(0,))
        stats = HostStats(rank=1, cpu_s=float(second), state="R", rss=1)
        script.handle(HostStatsReported(stats))
    assert not of(script.said, DeclareRankDead)
    view = script.machine.view(script.now)
    assert view.ranks[1].state == "busy"
    assert any(wait.phase == "busy, not answering" for wait in view.waits)


def test_a_rank_that_only_waits_is_not_busy():
    script = Script((("red", 2),)).start()
    script.forget()
    for second in range(32):
        script.wait(1.0, beating=(0,))
        stats = HostStats(rank=1, cpu_s=0.02 * second, state="S", rss=1)
        script.handle(HostStatsReported(stats))
    assert [effect.rank for effect in of(script.said, DeclareRankDead)] == [1]
    script.wait(7.0, beating=(0,))
    assert [effect.rank for effect in of(script.said, DeclareRankDead)] == [1]


def test_a_stopped_process_is_not_busy():
    script = Script((("red", 2),)).start()
    script.forget()
    for second in range(35):
        script.wait(1.0, beating=(0,))
        state = "R" if second < 25 else "T"
        stats = HostStats(rank=1, cpu_s=float(second), state=state, rss=1)
        script.handle(HostStatsReported(stats))
    assert [effect.rank for effect in of(script.said, DeclareRankDead)] == [1]


def test_a_rank_that_answers_without_progress_is_evicted_and_the_rest_go_on():
    script = Script((("red", 2),), n_samples=8, progress_timeout_s=60.0).start()
    script.cycle(1)
    script.batch(0)
    script.forget()
    script.wait(59.0, beating=(0, 1))
    assert not of(script.said, EvictRank)
    script.wait(2.0, beating=(0, 1))
    evicted = of(script.said, EvictRank)
    assert [effect.rank for effect in evicted] == [1]
    assert "holds 2 samples and finished no batch for 60 s" in evicted[0].reason
    assert sent(script.said, control.RequestParams, 0)


@pytest.mark.slow
def test_the_first_batch_may_take_half_an_hour():
    script = Script((("red", 2),), progress_timeout_s=60.0).start()
    script.batch(0)
    script.wait(1799.0, beating=(0, 1))
    assert not of(script.said, EvictRank)
    script.wait(3.0, beating=(0, 1))
    assert [effect.rank for effect in of(script.said, EvictRank)] == [1]


def test_a_slow_ranks_ceiling_is_twenty_of_its_batches():
    script = Script((("red", 1),), n_samples=8, progress_timeout_s=60.0).start()
    script.batch(0, batch_ms=10_000.0)
    script.ready(0, 1)
    script.rounds(1, [tally(0)])
    script.ack(0, 1)
    view = script.machine.view(script.now)
    assert view.ranks[0].progress_ceiling_s == 200.0


# stalls


@pytest.mark.slow
def test_a_pending_reduce_above_its_ceiling_saves_the_last_commit_and_fails():
    script = Script((("red", 2),)).start()
    for rank in (0, 1):
        script.batch(rank)
    script.ready(0, 1)
    script.forget()
    script.wait(299.0, beating=(0, 1))
    assert not of(script.said, SaveBundle)
    script.wait(2.0, beating=(0, 1))
    assert of(script.said, SaveBundle)[0].reason == "reduce_stall"
    said = script.saved(0)
    assert [m.reason for _, m in sent(said, control.ShutdownWithSave)] == ["reduce_stall"] * 2
    end = leave(script, 0, 1)[-1]
    assert isinstance(end, RunFinished)
    assert end.exit_code == 1
    assert "not acknowledged by ranks: 0, 1" in end.detail


def test_a_failed_round_ends_the_run():
    script = Script((("red", 1),)).start()
    script.batch(0)
    said = script.end(1, Round.PARAMS, RoundOutcome.FAILED)
    assert of(said, SaveBundle)[0].reason == "reduce_stall"


@pytest.mark.slow
def test_metrics_that_never_come_are_a_stall_that_names_the_rank():
    script = Script((("red", 2),), n_samples=4).start()
    script.cycle(1)
    script.metrics(0, 2)
    script.forget()
    script.wait(301.0, beating=(0, 1))
    assert of(script.said, SaveBundle)[0].reason == "reduce_stall"
    details = [alert.detail for alert in of(script.said, RaiseAlert)]
    assert "metrics of ranks 1 are incomplete" in details[0]


@pytest.mark.slow
def test_an_evaluation_that_never_ends_is_a_stall():
    script = Script((("red", 1),), has_eval=True, n_samples=2).start()
    script.cycle(1)
    script.metrics(0, 2)
    script.forget()
    script.wait(301.0, beating=(0,))
    assert "rank 0 evaluates epoch 1" in of(script.said, RaiseAlert)[0].detail


@pytest.mark.slow
def test_a_save_that_hangs_ends_the_run_and_a_last_one_without_a_bundle():
    script = Script((("red", 1),), n_samples=2, settings={"leave_timeout_s": 5.0}).start()
    script.cycle(1)
    script.metrics(0, 2)
    script.checkpoint_result(0, 1)
    script.forget()
    script.wait(301.0, beating=(0,))
    assert sent(script.said, control.Shutdown, 0)
    end = ends(script.exiting(0))
    assert end.exit_code == 5
    assert "has not ended in 300 s" in end.detail


@pytest.mark.slow
def test_a_rank_that_never_answers_the_first_checkpoint_is_a_stall():
    script = Script((("red", 1),)).rendezvous()
    script.ready(0, 0, samples=0)
    script.rounds(0, [tally(0, samples=0)])
    script.ack(0, 0)
    script.batch(0)
    script.forget()
    script.wait(301.0, beating=(0,))
    save = of(script.said, SaveBundle)[0]
    assert (save.version, save.reason) == (0, "reduce_stall")


# stops


def test_a_stop_finishes_the_window_saves_and_leaves_with_its_code():
    script = Script((("red", 2),), n_samples=12).start()
    script.batch(0)
    assert not sent(script.handle(stop(code=130)), control.Checkpoint)
    assert len(sent(script.batch(1), control.RequestParams)) == 2
    for rank in (0, 1):
        script.ready(rank, 1)
    script.rounds(1, [tally(0), tally(1)])
    script.ack(0, 1)
    said = script.ack(1, 1)
    assert not sent(said, control.Update)
    assert sent(said, control.Checkpoint, 0) == [control.Checkpoint(version=1, target_rank=0)]
    assert of(script.checkpoint_results(1), SaveBundle)[0].reason == "graceful_shutdown"
    assert len(sent(script.saved(1), control.ShutdownWithSave)) == 2
    leave(script, 0, 1)
    end = ends(script.said)
    assert (end.exit_code, end.reason) == (130, "stopped")


def test_past_its_grace_a_stop_saves_what_is_committed():
    script = Script((("red", 2),), n_samples=12).start()
    script.handle(stop())
    script.forget()
    script.wait(24.0, beating=(0, 1))
    assert not of(script.said, SaveBundle)
    script.wait(2.0, beating=(0, 1))
    assert of(script.said, SaveBundle)[0].version == 0


def test_past_its_grace_a_stop_does_not_wait_for_the_asked_rank():
    script = Script((("red", 1),), n_samples=12).start()
    script.batch(0)
    script.handle(stop())
    script.ready(0, 1)
    script.rounds(1, [tally(0)])
    assert sent(script.ack(0, 1), control.Checkpoint, 0)
    script.forget()
    script.wait(26.0, beating=(0,))
    assert of(script.said, SaveBundle)[0].version == 1
    assert codes(script.checkpoint_result(0, 1)) == ["checkpoint_out_of_place"]


def test_a_stop_now_ends_at_once():
    script = Script().start()
    assert ends(script.handle(stop(StopKind.NOW, 130))).exit_code == 130


def test_a_second_stop_to_save_is_a_note():
    script = Script().start()
    script.handle(stop())
    assert codes(script.handle(stop())) == ["stop_already_requested"]


def test_a_stop_before_the_first_commit_saves_nothing():
    script = Script()
    script.hello(0)
    end = ends(script.handle(stop(code=130)))
    assert (end.exit_code, end.reason) == (130, "stopped")
    script = Script().rendezvous()
    script.handle(stop())
    script.forget()
    script.wait(26.0, beating=(0, 1, 2))
    assert ends(script.said).reason == "stopped"


def test_a_stop_during_the_evaluation_does_not_wait_for_it():
    script = Script((("red", 2),), has_eval=True, n_samples=4).start()
    script.cycle(1)
    script.metrics(0, 2)
    script.metrics(1, 2)
    assert sent(script.handle(stop()), control.Checkpoint, 0)


def test_a_stop_while_metrics_are_awaited_saves_at_once():
    script = Script((("red", 2),), n_samples=4).start()
    script.cycle(1)
    assert sent(script.handle(stop()), control.Checkpoint, 0)


def test_the_last_save_waits_for_the_one_that_is_being_written():
    script = Script((("red", 1),), n_samples=4, settings={"checkpoint_every_s": 0.001}).start()
    script.now += 1.0
    script.cycle(1)
    assert of(script.checkpoint_result(0, 1), SaveBundle)
    script.cycle(2)
    said = script.metrics(0, 4)
    assert not sent(said, control.Checkpoint)
    assert sent(script.saved(1), control.Checkpoint, 0)[0].version == 2


def test_the_next_rank_is_asked_for_the_last_save_when_the_asked_one_dies():
    script = Script((("red", 2),), n_samples=4).start()
    script.cycle(1)
    script.metrics(0, 2)
    script.metrics(1, 2)
    assert sent(script.lose(0), control.Checkpoint, 1) == [
        control.Checkpoint(version=1, target_rank=1, with_rank_files=False)
    ]
    assert of(script.lose(1), SaveBundle)[0].reason == "graceful_shutdown"
    assert ends(script.saved(1)).exit_code == 0


# non-finite values


def test_a_declared_rank_loses_its_samples_of_the_window_and_stays():
    script = Script((("red", 2),), n_samples=8).start()
    for rank in (0, 1):
        script.batch(rank)
    for rank in (0, 1):
        script.ready(rank, 1, n=1 - rank)
    said = script.rounds(1, [tally(0), RankTally(rank=1, n=0, samples=2, declared=True)])
    assert ranges(said) == {(0, 0, 2)}
    assert ranges(said, "dropped") == {(1, 4, 2)}
    assert [alert.alert_class for alert in of(said, RaiseAlert)] == ["nonfinite"]
    script.ack(0, 1)
    assert sent(script.ack(1, 1, Sync.DECLINED), control.Update, 1)


def test_an_outer_step_that_is_not_finite_is_an_alert_and_the_commit_stands():
    script = Script((("red", 2),), n_samples=8).start()
    for rank in (0, 1):
        script.batch(rank)
    for rank in (0, 1):
        script.ready(rank, 1)
    tallies = (tally(0), tally(1))
    script.end(1, Round.CONTROL, accepted=(0, 1), tallies=tallies)
    said = script.handle(
        RoundEnded(1, Round.PARAMS, RoundOutcome.COMMITTED, (0, 1), 2.0, tallies, 3)
    )
    assert ranges(said) == {(0, 0, 2), (1, 4, 2)}
    (alert,) = of(said, RaiseAlert)
    assert (alert.alert_class, alert.rank) == ("nonfinite", None)
    assert "outer step of 3 buckets" in alert.detail


def declare(script, cycle, *, others):
    for rank in (0, 1):
        script.batch(rank)
    finite = [tally(0)] if others else [RankTally(rank=0, n=0, samples=2, declared=True)]
    tallies = [*finite, RankTally(rank=1, n=0, samples=2, declared=True)]
    for one in tallies:
        script.ready(one.rank, cycle, n=one.n)
    script.rounds(cycle, tallies)
    outcomes = (Sync.COMMITTED, Sync.DECLINED) if others else (Sync.UNREALIZED,) * 2
    return script.ack(0, cycle, outcomes[0]) + script.ack(1, cycle, outcomes[1])


def test_three_declared_cycles_in_a_row_evict_a_rank():
    script = Script((("red", 2),), n_samples=40).start()
    declare(script, 1, others=True)
    declare(script, 2, others=True)
    said = declare(script, 3, others=True)
    assert [effect.rank for effect in of(said, EvictRank)] == [1]
    assert sent(said, control.Update, 0)


def test_a_finite_cycle_between_counts_from_the_start():
    script = Script((("red", 2),), n_samples=40).start()
    declare(script, 1, others=True)
    declare(script, 2, others=True)
    script.cycle(3)
    declare(script, 4, others=True)
    assert not of(declare(script, 5, others=True), EvictRank)


def test_three_cycles_without_a_finite_value_end_the_run_and_evict_nobody():
    script = Script((("red", 2),), n_samples=40).start()
    script.cycle(1)
    declare(script, 2, others=False)
    declare(script, 3, others=False)
    script.forget()
    said = declare(script, 4, others=False)
    assert not of(script.said, EvictRank)
    save = of(said, SaveBundle)[0]
    assert (save.version, save.reason) == (1, "non_finite")
    script.saved(1)
    assert ends(leave(script, 0, 1)).exit_code == 1


def test_the_phase_that_a_rank_reports_is_shown():
    script = Script().start()
    script.tell(0, script.heartbeat(0, RankPhase.CALLBACK))
    assert script.machine.view(script.now).ranks[0].phase == "callback"
