"""Waits beside an average: each has its own ceiling, and costs no more than who is waited for."""

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

from flodl_core.coordinator.cadence import CadenceSettings
from flodl_core.coordinator.events import CheckpointRequested
from flodl_core.elche.settings import ElcheSettings
from flodl_core.ids import Mode, RankPhase

TRAINING, REDUCING = RankPhase.TRAINING, RankPhase.REDUCING
ENDS = (EvictRank, SaveBundle)


def evicted(said):
    return [effect.rank for effect in of(said, EvictRank)]


def batches(script, rank, count, *, batch_ms=10.0):
    for _ in range(count):
        script.batch(rank, batch_ms=batch_ms)


def brought(script, cycle, counts):
    """These ranks come to a cycle with so many batches, and its rounds end."""
    for rank, count in counts.items():
        script.ready(rank, cycle, n=count, samples=2 * count)
    return script.rounds(
        cycle, [tally(rank, n=count, samples=2 * count) for rank, count in counts.items()]
    )


def adopting_while_rank_2_trains(batch_ms=10.0):
    """Ranks that run on: two have adopted, the third is in the batch after its snapshot."""
    script = Script((("red", 3),), mode=Mode.CPU_ASYNC, n_samples=4000).start()
    planned = [record.planned_batches for record in script.machine._state.cohort]
    for rank, count in enumerate(planned):
        batches(script, rank, count, batch_ms=batch_ms)
    brought(script, 1, dict(enumerate(planned)))
    script.ack(0, 1)
    script.ack(1, 1)
    return script


def test_a_rank_that_runs_on_and_hangs_before_it_adopts_goes_alone():
    script = adopting_while_rank_2_trains()
    phases = {0: RankPhase.HELD, 1: RankPhase.HELD, 2: TRAINING}
    assert not of(script.wait(300.0, beating=phases), ENDS)
    said = script.wait(0.1, beating=phases)
    assert evicted(said) == [2]
    assert not ends(said)
    assert not script.machine._state.cycle.pending  # the average is over without it


def test_a_rank_that_runs_on_may_be_in_a_long_batch_before_it_adopts():
    script = adopting_while_rank_2_trains(batch_ms=60_000.0)
    phases = {0: RankPhase.HELD, 1: RankPhase.HELD, 2: TRAINING}
    assert not of(script.wait(1000.0, beating=phases), ENDS)
    script.ack(2, 1)
    assert not script.machine._state.cycle.pending


@pytest.mark.parametrize(("total", "held"), [(40, 10), (18, 8), (14, 6)])
def test_a_rank_that_hangs_before_it_adopts_goes_alone_however_little_it_holds(total, held):
    """Both bring four batches, 8 samples, of the up to nine that they hold when it begins."""
    cadence = CadenceSettings(elche=ElcheSettings(pinned_counts=(4, 4)), overshoot=1)
    script = Script(
        (("red", 2),),
        mode=Mode.CPU_ASYNC,
        n_samples=2 * total,
        settings={"cadence": cadence},
    ).start()
    for rank in (0, 1):
        batches(script, rank, 4)
    brought(script, 1, {0: 4, 1: 4})
    script.ack(0, 1)
    phases = {0: RankPhase.HELD, 1: TRAINING}
    assert not of(script.wait(300.0, beating=phases), ENDS)
    said = script.wait(0.1, beating=phases)
    assert [
        (one.rank, f"it holds {held} samples" in one.reason) for one in of(said, EvictRank)
    ] == [(1, True)]
    assert not of(said, SaveBundle)
    assert not script.machine._state.cycle.pending


def held_back():
    """The first of three ranks that run on is two batches ahead, and is told to wait."""
    elche = ElcheSettings(max_batch_diff=2)
    script = Script(
        (("red", 3),),
        mode=Mode.CPU_ASYNC,
        n_samples=4000,
        settings={"cadence": CadenceSettings(elche=elche)},
    ).start()
    batches(script, 0, 9)
    assert sent(script.batch(0), control.Throttle, 0)
    return script


def test_a_rank_that_is_held_back_and_hangs_in_the_batch_that_it_is_in_goes_alone():
    script = held_back()
    script.tell(0, script.heartbeat(0))  # in a batch that it had begun
    for rank in (1, 2):
        batches(script, rank, 10)
    assert script.machine._state.cycle.pending
    for rank in (1, 2):
        script.ready(rank, 1, n=10, samples=20)
    phases = {0: TRAINING, 1: REDUCING, 2: REDUCING}
    assert not of(script.wait(300.0, beating=phases), ENDS)
    said = script.wait(0.1, beating=phases)
    assert evicted(said) == [0]
    assert not ends(said)


def test_a_rank_that_is_held_back_and_says_so_owes_nothing():
    script = held_back()
    script.tell(0, script.heartbeat(0, RankPhase.HELD))
    for rank in (1, 2):  # theirs may take 20 minutes each
        batches(script, rank, 9, batch_ms=60_000.0)
    said = script.wait(1000.0, beating={0: RankPhase.HELD, 1: TRAINING, 2: TRAINING})
    assert not of(said, ENDS)


def evaluating(mode=Mode.CPU_SYNC, **settings):
    """A pass is over, a rank evaluates and all write what is theirs, if that is asked for."""
    script = Script(
        (("red", 2),), mode=mode, n_samples=8, epochs=3, has_eval=True, settings=settings
    ).start()
    book, cycle = script.machine._state.book, 1
    while not book.settled:
        script.cycle(cycle)
        cycle += 1
    for rank in (0, 1):
        script.metrics(rank, book.attributed_samples(rank))
    assert script.machine._state.evaluation is not None
    return script


def test_an_evaluation_begins_when_its_rank_has_written_its_part_of_a_save():
    script = evaluating(checkpoint_every_epochs=1)
    target = script.machine._state.evaluation.target
    version = script.machine._state.saves.current.version
    assert not ends(script.wait(200.0, beating=dict.fromkeys((0, 1), RankPhase.SAVING)))
    script.checkpoint_results(version)
    script.saved(version)
    phases = {0: RankPhase.HELD, 1: RankPhase.HELD} | {target: RankPhase.CALLBACK}
    assert not of(script.wait(299.9, beating=phases), RaiseAlert)
    said = script.wait(0.2, beating=phases)
    assert f"rank {target} evaluates epoch 1, for 300 s" in of(said, RaiseAlert)[0].detail


def test_an_evaluation_beside_a_cut_keeps_its_ceiling_and_is_shown():
    script = Script(
        (("red", 3),), mode=Mode.CPU_CADENCE, n_samples=240, epochs=3, has_eval=True
    ).start()
    state, cycle = script.machine._state, 1
    while not state.book.settled:
        counts = {rank: state.cohort[rank].planned_batches for rank in range(3)}
        for rank, count in counts.items():
            batches(script, rank, count, batch_ms=60_000.0)  # of which 20 are a ceiling
        brought(script, cycle, counts)
        for rank in range(3):
            script.ack(rank, cycle)
        cycle += 1
    for rank in range(3):
        script.metrics(rank, state.book.attributed_samples(rank))
    target = state.evaluation.target
    others = [rank for rank in range(3) if rank != target]
    phases = dict.fromkeys(others, TRAINING) | {target: RankPhase.CALLBACK}
    script.wait(100.0, beating=phases)
    assert sent(script.handle(CheckpointRequested("operator")), control.Cut)
    script.ready(others[0], state.cycle.cycle, n=0, samples=0)
    phases[others[0]] = REDUCING
    script.wait(100.0, beating=phases)
    shown = [wait for wait in script.machine.view(script.now).waits if wait.rank == target]
    assert shown[0].phase == f"callback: rank {target} evaluates epoch 1"
    assert shown[0].age_s == pytest.approx(200.0, abs=1.0)
    assert not of(script.wait(99.0, beating=phases), RaiseAlert)
    said = script.wait(2.0, beating=phases)
    assert f"rank {target} evaluates epoch 1" in of(said, RaiseAlert)[0].detail


@pytest.mark.parametrize("mode", [Mode.CPU_SYNC, Mode.CPU_CADENCE])
def test_who_was_to_tell_its_buffers_is_lost_and_the_next_is_asked_when_nobody_trains(mode):
    script = Script((("red", 3),), mode=mode, n_samples=4000)
    script.rendezvous()
    for rank in range(3):
        script.ready(rank, 0, n=int(rank == 0), samples=0)
    script.rounds(0, [tally(rank, n=int(rank == 0), samples=0) for rank in range(3)])
    for rank in range(3):
        script.ack(rank, 0)
    assert [rank for rank, _ in sent(script.said, control.Checkpoint)] == [0]
    script.forget()
    said = script.lose(0)
    # the others are in first batches, which may take half an hour each
    said += script.wait(1700.0, beating=(1, 2))
    assert not sent(said, control.Checkpoint)
    assert not of(said, ENDS)
    counts = {rank: script.machine._state.cohort[rank].planned_batches for rank in (1, 2)}
    for rank, count in counts.items():
        batches(script, rank, count)
    brought(script, 1, counts)
    said = script.ack(1, 1) + script.ack(2, 1)
    order = sent(said, control.Checkpoint)
    assert [(rank, one.with_rank_files) for rank, one in order] == [(1, False)]
    said = script.checkpoint_result(1, 1)
    assert not of(said, SaveBundle)
