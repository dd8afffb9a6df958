"""What the status document gets to see."""

import pytest
from coordinator_script import Script, control, sent, tally

from flodl_core.coordinator.events import (
    CheckpointRequested,
    DrainRequested,
    StopKind,
    StopRequested,
)
from flodl_core.ids import HostName, OuterKind, RankPhase
from flodl_core.messages import timing
from flodl_core.messages.job import OuterSpec


def view(script):
    return script.machine.view(script.now)


def test_before_anything_every_rank_is_spawning():
    seen = view(Script())
    assert seen.stage == "rendezvous"
    assert [rank.state for rank in seen.ranks] == ["spawning"] * 3
    assert [(rank.rank, rank.host, rank.device) for rank in seen.ranks] == [
        (0, "red", "cpu:0"),
        (1, "red", "cpu:1"),
        (2, "blue", "cpu:0"),
    ]
    assert (seen.training.samples_total, seen.training.epochs) == (12, 1)
    assert seen.reduce.version is None


def test_states_follow_a_window():
    script = Script().start()
    assert [rank.state for rank in view(script).ranks] == ["training"] * 3
    script.batch(0)
    assert [rank.state for rank in view(script).ranks] == ["held", "training", "training"]
    assert "rank 1 (cpu:1 on red) has done 0 of 1" in view(script).reason
    script.batch(1)
    script.batch(2)
    script.ready(0, 1)
    assert [rank.state for rank in view(script).ranks] == ["reducing", "snapshot", "snapshot"]
    seen = view(script).reduce
    assert (seen.state, seen.phase, seen.cycle, seen.pending_s) == ("pending", "counting", 1, 0.0)
    script.ready(1, 1)
    script.ready(2, 1)
    script.rounds(1, [tally(rank) for rank in range(3)])
    script.ack(2, 1)
    assert [rank.state for rank in view(script).ranks] == ["reducing", "reducing", "held"]


def test_shares_weights_and_rates_after_a_few_windows():
    script = Script((("red", 2),), n_samples=40).start()
    script.now += 2.0
    script.cycle(1)
    script.now += 2.0
    script.cycle(2)
    seen = view(script)
    assert [rank.throughput for rank in seen.ranks] == pytest.approx([1.0, 1.0])
    assert [rank.share for rank in seen.ranks] == [0.5, 0.5]
    assert [rank.weight for rank in seen.ranks] == [0.5, 0.5]
    assert [rank.batch_count for rank in seen.ranks] == [2, 2]
    assert [rank.samples for rank in seen.ranks] == [4, 4]
    assert seen.training.throughput == pytest.approx(2.0)
    assert seen.training.ideal_throughput == pytest.approx(400.0)
    assert seen.training.eta_s == pytest.approx(16.0)
    assert (seen.training.loss, seen.training.global_step, seen.training.syncs) == (0.5, 4, 2)
    assert seen.reduce.last_outcome == "committed"
    assert seen.reduce.bytes == 16


@pytest.mark.parametrize("window_s", [2.0, 14.0, 20.0, 40.0, 100.0])
@pytest.mark.parametrize("into", [0.0, 0.5, 0.99])
def test_the_rate_is_right_however_long_a_window_and_wherever_in_it(window_s, into):
    script = Script((("red", 2),), n_samples=400).start()
    for cycle in range(1, 6):
        script.wait(window_s, beating=(0, 1))
        script.cycle(cycle)
    script.wait(into * window_s, beating=(0, 1))
    seen = view(script).training
    assert seen.throughput == pytest.approx(4 / window_s)
    assert seen.eta_s == pytest.approx((400 - 20) * window_s / 4)


def test_the_rate_falls_while_a_window_takes_longer_than_the_last():
    script = Script((("red", 2),), n_samples=400).start()
    for cycle in range(1, 3):
        script.wait(10.0, beating=(0, 1))
        script.cycle(cycle)
    script.wait(20.0, beating=(0, 1))
    assert view(script).training.throughput == pytest.approx(4 / 30)
    script.wait(200.0, beating=(0, 1))
    assert view(script).training.throughput == pytest.approx(4 / 230)


def test_the_ceiling_of_an_average_counts_from_when_the_last_rank_came_to_it():
    script = Script((("red", 2),), n_samples=400, stall_timeout_s=300.0).start()
    script.batch(0)
    script.batch(1)
    script.now += 50.0
    script.ready(0, 1)
    script.ready(1, 1)
    seen = view(script).reduce
    assert 300.0 <= seen.stall_ceiling_s <= 351.0
    assert seen.pending_s is not None


def test_of_ranks_that_left_neither_loss_nor_rate_is_counted():
    script = Script((("red", 2), ("blue", 1)), n_samples=400).start()
    for cycle in range(1, 3):
        script.now += 1.0
        script.cycle(cycle)
    script.handle(DrainRequested(HostName("blue"), "operator"))
    script.now += 1.0
    script.cycle(3)
    for cycle in range(4, 20):
        for rank in (0, 1):
            script.batch(rank, loss=0.1)
        for rank in (0, 1):
            script.ready(rank, cycle)
        script.now += 1.0
        script.rounds(cycle, [tally(rank) for rank in (0, 1)])
        for rank in (0, 1):
            script.ack(rank, cycle)
    seen = view(script)
    assert seen.training.loss == pytest.approx(0.1)
    rates = [rank.throughput for rank in seen.ranks]
    assert rates[2] is None
    assert rates[0] + rates[1] == pytest.approx(seen.training.throughput)


def test_weights_follow_gamma():
    script = Script((("red", 2),), n_samples=40, gamma=2.0).start()
    script.batch(0)
    script.batch(1)
    script.rounds(1, [tally(0, n=1), tally(1, n=3)])
    assert [rank.weight for rank in view(script).ranks] == [0.1, 0.9]


def test_the_outer_optimizer_is_shown_with_its_numbers():
    assert view(Script((("red", 2),), n_samples=8)).reduce.outer is None
    outer = OuterSpec(kind=OuterKind.SLOWMO, lr=0.5, momentum=0.25)
    assert view(Script((("red", 2),), n_samples=8, outer=outer)).reduce.outer == outer


def test_waits_appear_after_five_seconds_with_their_ceilings():
    script = Script((("red", 2),), n_samples=8).start()
    script.batch(0)
    script.wait(5.0, beating=(0, 1))
    assert view(script).waits == ()
    script.wait(1.0, beating=(0, 1))
    wait = view(script).waits[0]
    assert (wait.rank, wait.host, wait.phase) == (1, "red", "in a batch: computing")
    assert (wait.ceiling_s, wait.outcome) == (1800.0, "it is evicted")
    assert wait.age_s == pytest.approx(6.0)


def test_the_wait_of_a_reduce_names_who_is_missing():
    script = Script((("red", 2),), n_samples=8).start()
    script.batch(0)
    script.batch(1)
    script.wait(6.0, beating=(0, 1))
    wait = view(script).waits[0]
    assert wait.phase == "cycle 1 is counting; not acknowledged by ranks: 0, 1"
    assert wait.outcome == "the last commit is saved and the run ends"


def rows(script):
    return [(wait.rank, wait.phase, wait.outcome) for wait in view(script).waits]


def tell_phase(script, rank, phase, lasted_s=0.0):
    script.tell(
        rank, timing.Heartbeat(rank=rank, step_count=0, phase=RankPhase(phase), phase_s=lasted_s)
    )


def test_a_rank_that_waits_for_its_data_is_shown_apart_from_one_that_computes():
    script = Script((("red", 2),), n_samples=8).start()
    script.wait(6.0, beating=(0, 1))
    tell_phase(script, 1, "data", 6.0)
    assert rows(script) == [
        (0, "in a batch: computing", "it is evicted"),
        (1, "in a batch: waiting for its data", "it is evicted"),
    ]


def test_a_rank_that_is_held_is_shown_until_the_first_of_the_others_is_given_up():
    script = Script((("red", 3),), n_samples=24).start()
    script.cycle(1)
    script.wait(2.0, beating=(0, 1, 2))
    script.batch(0)
    script.wait(6.0, beating=(1, 2))
    tell_phase(script, 0, "held", 6.0)
    held = next(wait for wait in view(script).waits if wait.rank == 0)
    assert (held.rank, held.host) == (0, "red")
    assert (held.phase, held.outcome) == (
        "held: waiting for the batches of others",
        "rank 1 is evicted",
    )
    assert held.age_s == pytest.approx(6.0)
    assert held.ceiling_s == pytest.approx(300.0 - 2.0)


@pytest.mark.parametrize(
    ("phase", "shown"),
    [
        ("training", "reduce: waits for its batch"),
        ("data", "reduce: waits for its batch, which waits for its data"),
        ("snapshot", "snapshot: laying out its parameters"),
        ("reducing", "reduce: waiting for the average"),
        ("adopting", "adopt: taking over the average"),
    ],
)
def test_each_rank_that_a_cycle_waits_for_is_shown_in_its_part_of_it(phase, shown):
    script = Script((("red", 2),), n_samples=8).start()
    script.batch(0)
    script.batch(1)
    script.wait(6.0, beating=(0, 1))
    tell_phase(script, 1, phase)
    tell_phase(script, 0, "held")
    found = [row for row in rows(script) if row[0] == 1]
    assert found == [(1, shown, "the last commit is saved and the run ends")]


def test_an_evaluation_that_lasts_is_shown_with_its_rank():
    script = Script((("red", 1),), n_samples=2, has_eval=True, epochs=2).start()
    script.batch(0)
    script.cycle(1)
    script.metrics(0, 2)
    script.wait(6.0, beating=(0,))
    wait = view(script).waits[0]
    assert (wait.rank, wait.host) == (0, "red")
    assert wait.phase == "callback: rank 0 evaluates epoch 1"


def test_the_age_of_a_phase_is_what_the_rank_says_of_it():
    script = Script((("red", 1),), n_samples=8).start()
    script.wait(1.0, beating=(0,))
    tell_phase(script, 0, "data", 0.75)
    record = script.machine._state.cohort[0]
    assert script.now - record.phase_at == pytest.approx(0.75)
    tell_phase(script, 0, "data", float("nan"))
    assert record.phase_at == script.now
    tell_phase(script, 0, "data", -5.0)
    assert record.phase_at == script.now


def test_saves_stops_and_farewells_are_waits_too():
    script = Script((("red", 1),), n_samples=12).start()
    script.handle(CheckpointRequested("operator"))
    script.cycle(1)
    script.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    script.wait(6.0, beating=(0,))
    phases = [wait.phase for wait in view(script).waits]
    assert "asking for the save of version 1" in phases
    assert "finishing the window" in phases
    assert view(script).ranks[0].state == "saving"
    assert view(script).saves.phase == "asking"
    script.batch(0)
    script.checkpoint_result(0, 1)
    script.saved(1)
    assert view(script).saves.saved_version == 1
    script.ready(0, 2)
    script.rounds(2, [tally(0)])
    script.ack(0, 2)
    script.checkpoint_result(0, 2)
    script.saved(2)
    script.wait(6.0, beating=(0,))
    assert [wait.phase for wait in view(script).waits] == ["leaving: ranks 0"]
    assert view(script).reason == "stopped by SIGTERM and saved"


def test_gone_ranks_are_lost_or_done_with_their_cause():
    script = Script().start()
    script.lose(2, "signal 9")
    script.exiting(1)
    seen = view(script).ranks
    assert [(rank.state, rank.cause) for rank in seen[1:]] == [
        ("done", "exited"),
        ("lost", "signal 9"),
    ]
    assert seen[2].heartbeat_age_s is None


def test_a_rank_that_evaluates_is_in_a_callback():
    script = Script((("red", 1),), has_eval=True, n_samples=2).start()
    script.cycle(1)
    assert sent(script.metrics(0, 2), control.ExecuteEval, 0)
    assert view(script).ranks[0].state == "callback"


def test_learning_rate_divergence_and_resources_are_shown():
    script = Script((("red", 1),), n_samples=8).start()
    script.tell(0, timing.LrUpdate(rank=0, lr=0.25))
    sample = timing.ResourceSample(rank=0, cpu_percent=50.0)
    script.tell(0, sample)
    script.cycle(1)
    seen = view(script)
    assert seen.training.lr == 0.25
    assert seen.ranks[0].resources == sample
    assert seen.ranks[0].divergence == 0.1
