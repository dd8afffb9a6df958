"""The oracles catch what they are there for: each is fed one lie."""

import numpy as np
import pytest

from flodl_core.coordinator.effects import (
    DeclareRankDead,
    RecordSamples,
    RunFinished,
    SampleEntry,
    SampleStatus,
    SaveBundle,
    SaveFacts,
    Send,
)
from flodl_core.coordinator.events import RankMessage, RoundEnded
from flodl_core.dispatch.ranges import Range
from flodl_core.ids import Mode, OuterKind, Round, RoundOutcome, SaveReason, SyncOutcome
from flodl_core.machines import Tick
from flodl_core.messages.control import EpochAggregated
from flodl_core.messages.data import BucketFrame, RankTally
from flodl_core.messages.job import OuterSpec
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.simulation.end_oracle import EndOracle
from flodl_core.simulation.oracles import Oracles
from flodl_core.simulation.rules import Rules, SimulationFailure
from flodl_core.simulation.scenario import Action, Fault, Scenario
from flodl_core.simulation.sim_root import Committed
from flodl_core.simulation.tiny_model import TinySlot
from flodl_core.simulation.value_oracle import ValueOracle

ONE = np.ones(3, np.float32)
NONE = np.zeros(0, np.float32)


class Clock:
    now = 10.0


def make(**numbers):
    numbers = {"n_samples": 8, "buffer_buckets": 0, "param_buckets": 1} | numbers
    scenario = Scenario(seed=1, **numbers)
    rules = Rules(scenario, lambda: Clock.now)
    return Oracles(rules, ValueOracle(rules), EndOracle(rules))


def slot(rank, n=1, samples=2, declared=False, params=ONE):
    return TinySlot(rank, n, samples, declared, float(n), float(n > 0), params, NONE)


def told(oracles, *effects, event=None):
    oracles.effects(event or Tick(), effects)


def entry(rank=0, offset=0, cycle=1, status=SampleStatus.TRAINED):
    return SampleEntry(0, 0, cycle, rank, status, "", (Range(offset, 2),))


def committed(cycle, *ranks, tallies=()):
    return RoundEnded(cycle, Round.PARAMS, RoundOutcome.COMMITTED, ranks, 1.0, tallies)


def with_snapshot(oracles, rank=0, cycle=1, offset=0, **numbers):
    oracles.values.snapshot_taken(cycle, slot(rank, **numbers), [(0, offset, 2)])
    oracles.values.round_reported(committed(cycle, rank))
    return oracles


def test_the_truth_passes():
    oracles = with_snapshot(make())
    told(oracles, RecordSamples((entry(),)), event=committed(1, 0))
    assert oracles.trained == 2


@pytest.mark.parametrize(
    ("rule", "lie"),
    [
        ("samples", entry(offset=4)),
        ("samples", entry(rank=1)),
        ("samples", entry(cycle=2)),
        ("samples", entry(status=SampleStatus.DROPPED)),
    ],
)
def test_samples_that_a_rank_did_not_draw_or_that_have_another_fate_are_caught(rule, lie):
    with pytest.raises(SimulationFailure, match=rule):
        told(with_snapshot(make()), RecordSamples((lie,)))


def test_a_sample_that_is_recorded_twice_is_caught():
    oracles = with_snapshot(with_snapshot(make()), cycle=2)
    told(oracles, RecordSamples((entry(),)))
    with pytest.raises(SimulationFailure, match="twice"):
        told(oracles, RecordSamples((entry(cycle=2),)))


def test_samples_of_a_rank_that_was_not_accepted_are_caught():
    oracles = make()
    oracles.values.snapshot_taken(1, slot(0), [(0, 0, 2)])
    with pytest.raises(SimulationFailure, match="one set"):
        told(oracles, RecordSamples((entry(),)))


def test_an_accepted_rank_whose_samples_are_forgotten_is_caught():
    with pytest.raises(SimulationFailure, match="its samples do not"):
        told(with_snapshot(make()), event=committed(1, 0))


def test_a_run_that_is_done_with_samples_left_is_caught():
    with pytest.raises(SimulationFailure, match="without positions"):
        told(make(), RunFinished(0, "finished", ""))


def frame(mass, *ranks, cycle=1):
    return BucketFrame(
        cycle=cycle,
        round=Round.PARAMS,
        index=0,
        count=1,
        mass=mass,
        ranks=ranks,
        nbytes=12,
        dtype="f32",
    )


def test_a_divisor_that_is_not_the_mass_of_the_ranks_is_caught():
    oracles = with_snapshot(with_snapshot(make()), rank=1)
    oracles.values.bucket_formed(frame(2.0, 0, 1), ONE)
    with pytest.raises(SimulationFailure, match="is divided by"):
        oracles.values.bucket_formed(frame(3.0, 0, 1), ONE)


def test_a_bucket_that_is_not_the_mean_is_caught():
    oracles = with_snapshot(with_snapshot(make()), rank=1, params=3 * ONE)
    oracles.values.bucket_formed(frame(2.0, 0, 1), 2 * ONE)
    with pytest.raises(SimulationFailure, match="instead of"):
        oracles.values.bucket_formed(frame(2.0, 0, 1), np.nextafter(2 * ONE, 3 * ONE) * 1.00001)


@pytest.mark.parametrize(
    ("kind", "stepped"),
    [(OuterKind.SLOWMO, (1.0, 2.0, 1.75)), (OuterKind.NESTEROV, (1.0, 2.5, 1.25))],
)
def test_an_average_that_is_not_stepped_as_it_should_be_is_caught(kind, stepped):
    """Means 1, 3 and 0.5 with a rate and a momentum of 0.5, worked out by hand.

    SlowMo: v = 1 − 3 = −2, x = 1 + 1 = 2; v = −1 + 1.5 = 0.5, x = 2 − 0.25 = 1.75.
    DiLoCo: v = −2, x = 1 + 0.5·(1 + 2) = 2.5; v = −1 + 2 = 1, x = 2.5 − 0.5·(0.5 + 2) = 1.25.
    """
    means = (1.0, 3.0, 0.5)
    oracles = make(outer=OuterSpec(kind=kind, lr=0.5, momentum=0.5))
    for cycle, (mean, value) in enumerate(zip(means, stepped, strict=True), 1):
        with_snapshot(oracles, cycle=cycle, params=np.float32(mean) * ONE)
        formed = frame(1.0, 0, cycle=cycle)
        wrong = mean if cycle > 1 else mean + 0.25
        with pytest.raises(SimulationFailure, match="instead of"):
            oracles.values.bucket_formed(formed, np.float32(wrong) * ONE)
        oracles.values.bucket_formed(formed, np.float32(value) * ONE)
        adopted = np.float32(value) * ONE
        oracles.values.cycle_committed(
            Committed(cycle, adopted, NONE, buffers_realized=True, cycle=cycle)
        )


def test_a_rank_that_adopted_other_bits_is_caught():
    values = make().values
    values.cycle_committed(Committed(1, ONE, NONE, buffers_realized=True))
    values.acknowledged(0, 1, SyncOutcome.COMMITTED, values=ONE, before=ONE)
    with pytest.raises(SimulationFailure, match="same bits"):
        values.acknowledged(
            0, 1, SyncOutcome.COMMITTED, values=np.nextafter(ONE, 2 * ONE), before=ONE
        )
    with pytest.raises(SimulationFailure, match="missed"):
        values.acknowledged(0, 1, SyncOutcome.UNREALIZED, values=ONE, before=ONE)


def test_a_rank_that_trained_on_and_moved_too_far_is_caught():
    half = make(mode=Mode.CPU_ASYNC, easgd_alpha=0.5)
    values = with_snapshot(half, params=3 * ONE).values
    values.cycle_committed(Committed(1, ONE, NONE, buffers_realized=True))
    moved = (3 * ONE + ONE) / 2 + np.float32(0.25)
    told = {"before": 3 * ONE + np.float32(0.25)}
    values.acknowledged(0, 1, SyncOutcome.COMMITTED, values=moved, **told)
    with pytest.raises(SimulationFailure, match="moved"):
        values.acknowledged(0, 1, SyncOutcome.COMMITTED, values=moved + np.float32(0.25), **told)


def test_a_consensus_that_is_not_finite_is_caught():
    with pytest.raises(SimulationFailure, match="not finite"):
        make().cycle_committed(Committed(1, ONE * np.float32(np.nan), NONE, buffers_realized=True))


def test_a_rank_that_declares_for_ever_is_caught():
    values = make().values
    tallies = (RankTally(rank=0, n=0, samples=2, declared=True),)
    for cycle in (1, 2, 3):
        values.round_reported(committed(cycle, 1, tallies=tallies))
    with pytest.raises(SimulationFailure, match="4 cycles in a row"):
        values.round_reported(committed(4, 1, tallies=tallies))


def test_two_commits_over_a_save_are_caught():
    oracles = make()
    first = Committed(1, ONE, NONE, buffers_realized=True)
    oracles.save_begun(first)
    for version in (1, 2):
        oracles.cycle_committed(Committed(version, ONE, NONE, buffers_realized=True))
    with pytest.raises(SimulationFailure, match="would overwrite"):
        oracles.cycle_committed(Committed(3, ONE, NONE, buffers_realized=True))


def test_a_pinned_value_that_changed_is_caught():
    oracles = make()
    params = ONE.copy()
    oracles.save_begun(Committed(1, params, NONE, buffers_realized=True))
    params[0] = 5.0
    with pytest.raises(SimulationFailure, match="pinned values changed"):
        oracles.save_ended()


def bundle(version, sync_round):
    facts = SaveFacts(
        epoch=0,
        epochs=1,
        epoch_splits=1,
        global_step=0,
        sync_round=sync_round,
        world_size=2,
        ranks_alive=2,
        seed=1,
        batch_size=2,
        n_samples=8,
        samples_trained=0,
        samples_dropped=0,
        coverage=(),
    )
    return SaveBundle(version, SaveReason.ALL_RANKS_LOST, facts, {})


def test_a_bundle_whose_meta_names_another_version_is_caught():
    with pytest.raises(SimulationFailure, match="saves"):
        told(make(), bundle(3, 2))


def test_samples_recorded_after_the_last_save_are_caught():
    oracles = with_snapshot(make(faults=(Fault(Action.CRASH, 0),)), cycle=4)
    oracles.ends.struck.update((0, 1))
    told(oracles, bundle(3, 3), RecordSamples((entry(cycle=4),)))
    with pytest.raises(SimulationFailure, match="recorded after version 3"):
        told(oracles, RunFinished(1, "all_ranks_lost", ""))


def test_a_checkpoint_that_is_read_a_batch_too_late_is_caught():
    with pytest.raises(SimulationFailure, match="batches too late"):
        make().checkpoint_read(version=2, drawn=1)


def test_an_innocent_rank_that_is_taken_out_is_caught():
    oracles = make()
    oracles.ends.struck.add(1)
    told(oracles, DeclareRankDead(1, "signal 9"), DeclareRankDead(0, "exited"))
    with pytest.raises(SimulationFailure, match="innocence"):
        told(oracles, DeclareRankDead(0, "silent"))


def test_a_silent_rank_that_is_forgotten_is_caught():
    oracles = make()
    oracles.ends.silent_since[0] = (0.0, 5.0)
    with pytest.raises(SimulationFailure, match="ceilings"):
        oracles.ends.look_for_the_forgotten()
    oracles.ends.taken_out.add(0)
    oracles.ends.look_for_the_forgotten()


@pytest.mark.parametrize("reason", ["reduce_stall", "non_finite", "all_ranks_lost", "stopped", "x"])
def test_an_end_without_its_cause_is_caught(reason):
    oracles = make(faults=(Fault(Action.CRASH, 0),))
    with pytest.raises(SimulationFailure, match="causes"):
        told(oracles, RunFinished(1, reason, ""))


def test_a_slow_stop_is_caught():
    oracles = make(faults=(Fault(Action.CRASH, 0),))
    oracles.ends.stop_at = -1000.0
    oracles.ends.struck.update((0, 1))
    with pytest.raises(SimulationFailure, match="stopping took"):
        told(oracles, RunFinished(1, "all_ranks_lost", ""))


def test_a_second_end_is_caught():
    oracles = make(faults=(Fault(Action.CRASH, 0),))
    oracles.ends.struck.update((0, 1))
    told(oracles, RunFinished(1, "all_ranks_lost", ""))
    with pytest.raises(SimulationFailure, match="ends once"):
        told(oracles, RunFinished(1, "all_ranks_lost", ""))


def test_an_epoch_that_ends_with_metrics_missing_is_caught():
    oracles = with_snapshot(make())
    told(oracles, RecordSamples((entry(),)))
    over = Send(0, EpochAggregated(epoch=0, samples=2))
    with pytest.raises(SimulationFailure, match="metrics"):
        told(oracles, over)
    report = MetricsMsg(
        rank=0,
        epoch=0,
        batches_processed=1,
        samples_processed=2,
        loss_samples=2,
        epoch_ms=1.0,
        share_complete_ms=1.0,
        compute_only_ms=1.0,
        data_starve_ms=0.0,
        scalars={},
    )
    told(oracles, over, event=RankMessage(0, report))
