"""Every ceiling of the scheduler by its name, in both modes: when it ends a wait, and how."""

import pytest
from coordinator_script import (
    EvictRank,
    RaiseAlert,
    SaveBundle,
    Script,
    control,
    ends,
    of,
    sent,
    tally,
)

from flodl_core.coordinator.effects import DropHost, DumpRankStack
from flodl_core.coordinator.events import (
    CheckpointRequested,
    DrainRequested,
    StopKind,
    StopRequested,
)
from flodl_core.ids import HostName, Mode, RankPhase, SaveReason

IN_CYCLE = {0: RankPhase.REDUCING, 1: RankPhase.REDUCING}
BOTH = pytest.mark.parametrize("mode", [Mode.CPU_SYNC, Mode.CPU_CADENCE])


def world(mode, hosts=(("red", 1), ("blue", 1)), **numbers):
    return Script(hosts, mode=mode, **({"n_samples": 400} | numbers))


def full_window(script):
    """Each rank does the batches of its window, and the averaging begins."""
    ranks = [rank for rank in range(script.world) if script.machine._state.cohort[rank].alive]
    planned = [script.machine._state.cohort[rank].planned_batches for rank in ranks]
    for rank, batches in zip(ranks, planned, strict=True):
        for _ in range(batches):
            script.batch(rank)
    return [(rank, batches) for rank, batches in zip(ranks, planned, strict=True)]


def stalled(said, words):
    """The run ends with the last commit, and says what it waited for."""
    alerts = [alert for alert in of(said, RaiseAlert) if alert.alert_class == "reduce_stall"]
    assert words in alerts[0].detail
    return of(said, SaveBundle)[0].reason is SaveReason.REDUCE_STALL


@BOTH
def test_the_bootstrap_ceiling_names_who_is_missing(mode):
    script = world(mode)
    script.hello(0)
    assert not ends(script.wait(120.0, beating=(0,)))
    end = ends(script.wait(0.1, beating=(0,)))
    assert (end.exit_code, end.reason) == (1, "rendezvous_failed")
    assert "rank 1 on blue" in end.detail


@BOTH
def test_the_heartbeat_ceiling_is_a_death_whose_work_goes_on(mode):
    script = world(mode).start()
    assert not of(script.wait(30.0, beating=(0,)), RaiseAlert)
    said = script.wait(0.1, beating=(0,))
    assert [alert.alert_class for alert in of(said, RaiseAlert)] == ["rank_lost"]
    assert "silent for 30 s (ceiling 30 s)" in of(said, RaiseAlert)[0].detail
    assert script.machine._state.book.held_samples(1) == 0
    assert not ends(said)


@BOTH
def test_a_clean_exit_is_never_a_death(mode):
    script = world(mode).start()
    said = script.exiting(1)
    assert not of(said, RaiseAlert)
    assert script.machine._state.book.held_samples(1) == 0


@BOTH
def test_the_progress_ceiling_evicts_who_holds_work_and_finishes_no_batch(mode):
    script = world(mode).start()
    script.batch(0)
    script.batch(1)
    if mode is Mode.CPU_SYNC:
        cycle_of(script, 1, [(0, 1), (1, 1)])
    assert not of(script.wait(300.0, beating=(0, 1)), EvictRank)
    said = script.wait(0.1, beating=(0, 1))
    evicted = of(said, EvictRank)[0]
    assert evicted.rank == 0
    assert "finished no batch for 300 s" in evicted.reason


@BOTH
def test_the_first_batch_has_half_an_hour(mode):
    script = world(mode).start()
    assert not of(script.wait(1800.0, beating=(0, 1)), EvictRank)
    assert of(script.wait(0.1, beating=(0, 1)), EvictRank)


def cycle_of(script, number, done):
    """The averaging of what these ranks did."""
    for rank, batches in done:
        script.ready(rank, number, n=batches, samples=2 * batches)
    tallies = [tally(rank, n=batches, samples=2 * batches) for rank, batches in done]
    said = script.rounds(number, tallies)
    for rank, _ in done:
        said += script.ack(rank, number)
    return said


@BOTH
def test_the_reduce_ceiling_saves_the_last_commit(mode):
    script = world(mode).start()
    full_window(script)
    script.ready(0, 1)
    assert not of(script.wait(300.0, beating=(0, 1)), SaveBundle)
    said = script.wait(0.1, beating=(0, 1))
    assert stalled(said, "cycle 1 is counting; not acknowledged by ranks: 0, 1")


@BOTH
def test_the_ceiling_of_a_cut_is_that_of_the_reduce(mode):
    script = world(mode).start()
    if mode is Mode.CPU_SYNC:
        full_window(script)
    else:
        assert sent(script.handle(CheckpointRequested("operator")), control.Cut)
    assert not of(script.wait(300.0, beating=IN_CYCLE), SaveBundle)
    assert stalled(script.wait(0.1, beating=IN_CYCLE), "cycle 1 is counting")


def cut_while_in_batches(*, batch_ms=10.0):
    """Both ranks have done a batch and are in the next one, and the window is cut."""
    script = world(Mode.CPU_CADENCE).start()
    for rank in (0, 1):
        script.batch(rank, batch_ms=batch_ms)
        script.tell(rank, script.heartbeat(rank))
    assert sent(script.handle(CheckpointRequested("operator")), control.Cut)
    return script


def test_a_batch_that_keeps_an_average_waiting_has_the_ceiling_of_a_batch():
    script = cut_while_in_batches()
    script.wait(10.0, beating=(0, 1))
    script.ready(0, 1, n=1, samples=2)
    phases = {0: RankPhase.REDUCING, 1: RankPhase.TRAINING}
    assert not of(script.wait(290.0, beating=phases), (EvictRank, SaveBundle))
    said = script.wait(0.1, beating=phases)
    assert [one.rank for one in of(said, EvictRank)] == [1]
    assert (
        "finished no batch for 300 s (ceiling 300 s, phase training)"
        in of(said, EvictRank)[0].reason
    )
    # the average goes on among the others, and has its whole ceiling from there on
    assert not of(script.wait(299.0, beating=IN_CYCLE), SaveBundle)
    script.rounds(1, [tally(0, n=1, samples=2)])
    assert sent(script.ack(0, 1), control.Checkpoint), "the save for which the window was cut"


def test_without_the_others_an_average_has_its_whole_ceiling_again():
    script = cut_while_in_batches()
    script.wait(10.0, beating=(0, 1))
    script.ready(0, 1, n=1, samples=2)
    phases = {0: RankPhase.REDUCING, 1: RankPhase.TRAINING}
    assert of(script.wait(290.1, beating=phases), EvictRank)
    assert not of(script.wait(299.9, beating=phases), SaveBundle)
    assert stalled(
        script.wait(0.2, beating=phases), "cycle 1 is counting; not acknowledged by ranks: 0"
    )


@pytest.mark.parametrize("comes", ["ready", "heartbeat"])
def test_an_average_has_its_ceiling_from_when_the_last_rank_came_to_it(comes):
    script = cut_while_in_batches(batch_ms=60_000.0)  # of which 20 are the ceiling of the next
    script.wait(1.0, beating=(0, 1))
    script.ready(0, 1, n=1, samples=2)
    phases = {0: RankPhase.REDUCING, 1: RankPhase.TRAINING}
    assert not of(script.wait(1000.0, beating=phases), (EvictRank, SaveBundle))
    if comes == "ready":
        script.ready(1, 1, n=1, samples=2)
    else:
        script.tell(1, script.heartbeat(1, RankPhase.REDUCING))
    assert not of(script.wait(299.9, beating=IN_CYCLE), (EvictRank, SaveBundle))
    assert stalled(script.wait(0.2, beating=IN_CYCLE), "not acknowledged by ranks: 0, 1")


def test_a_rank_whose_window_is_done_owes_no_batch_whatever_it_says():
    script = world(Mode.CPU_CADENCE).start()
    full_window(script)
    assert not of(script.wait(300.0, beating=(0, 1)), (EvictRank, SaveBundle))
    said = script.wait(0.1, beating=(0, 1))
    assert not of(said, EvictRank)
    assert stalled(said, "cycle 1 is counting")


@BOTH
def test_the_ceiling_of_adoption_names_who_has_not_acknowledged(mode):
    script = world(mode).start()
    done = full_window(script)
    for rank, batches in done:
        script.ready(rank, 1, n=batches, samples=2 * batches)
    script.rounds(1, [tally(rank, n=batches, samples=2 * batches) for rank, batches in done])
    script.ack(0, 1)
    script.wait(300.0, beating=(0, 1))
    said = script.wait(0.1, beating=(0, 1))
    assert stalled(said, "not acknowledged by ranks: 1")
    assert of(said, DumpRankStack) == [DumpRankStack(1)]


@BOTH
def test_the_ceiling_of_a_drain_of_metrics_names_the_rank(mode):
    script = world(mode, n_samples=8).start()
    if mode is Mode.CPU_SYNC:
        cycle_of(script, 1, full_window(script))
        cycle_of(script, 2, full_window(script))
    else:
        cycle_of(script, 1, full_window(script))
    script.metrics(0, 4)
    script.wait(300.0, beating=(0, 1))
    said = script.wait(0.1, beating=(0, 1))
    assert stalled(said, "metrics of ranks 1 are incomplete")
    assert of(said, DumpRankStack) == [DumpRankStack(1)]


@BOTH
def test_the_ceiling_of_a_callback_is_a_stall(mode):
    script = world(mode, n_samples=4, has_eval=True).start()
    done = full_window(script)
    cycle_of(script, 1, done)
    for rank, batches in done:
        script.metrics(rank, 2 * batches)
    script.wait(300.0, beating=(0, 1))
    said = script.wait(0.1, beating=(0, 1))
    assert stalled(said, "rank 0 evaluates epoch 1")
    assert of(said, DumpRankStack) == [DumpRankStack(0)]
    assert said.index(DumpRankStack(0)) < said.index(of(said, SaveBundle)[0])


@BOTH
def test_the_ceiling_of_a_save_ends_the_run(mode):
    script = world(mode).start()
    script.handle(CheckpointRequested("operator"))
    cycle_of(script, 1, [(0, 1), (1, 1)] if mode is Mode.CPU_CADENCE else full_window(script))
    assert sent(script.said, control.Checkpoint, 0)
    script.checkpoint_result(1, 1)
    full_window(script)
    said = script.wait(300.2, beating=(0, 1))
    assert stalled(said, "rank 0 has not answered the checkpoint of version 1, for 300 s")


@BOTH
def test_the_grace_of_a_stop_saves_what_is_committed(mode):
    script = world(mode).start()
    script.batch(0)
    script.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    assert not of(script.wait(25.0, beating=(0, 1)), SaveBundle)
    said = script.wait(0.1, beating=(0, 1))
    assert [bundle.version for bundle in of(said, SaveBundle)] == [0]


@BOTH
def test_the_ceiling_of_leaving_ends_the_run_without_the_rest(mode):
    script = world(mode).start()
    script.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    script.wait(25.1, beating=(0, 1))
    script.saved(0)
    script.exiting(0)
    assert ends(script.wait(25.2, beating=(1,))).exit_code == 4


@BOTH
def test_a_host_that_drains_in_vain_is_bounded_by_the_reduce(mode):
    script = world(mode).start()
    script.handle(DrainRequested(HostName("blue"), "operator"))
    if mode is Mode.CPU_SYNC:
        full_window(script)
    script.wait(300.0, beating=IN_CYCLE)
    assert stalled(script.wait(0.2, beating=IN_CYCLE), "cycle 1 is counting")


@BOTH
def test_a_host_whose_link_hangs_is_dropped_for_the_cycle_that_waits(mode):
    script = world(mode).start()
    full_window(script)
    script.ready(0, 1)
    script.lose(1)
    assert not of(script.wait(60.0, beating=(0,)), DropHost)
    dropped = of(script.wait(0.1, beating=(0,)), DropHost)
    assert [effect.host for effect in dropped] == ["blue"]
