"""Whether a bundle fits a run, and where the run then stands."""

import pytest

from flodl_core.checkpoint.meta import (
    BundleMeta,
    SavedArrangement,
    SavedCoverage,
    SavedEpoch,
    describe_save,
)
from flodl_core.checkpoint.resume import (
    RunNumbers,
    describe_changes,
    list_differences,
    resume_point,
)
from flodl_core.coordinator.facts import Arrangement, EpochCoverage, EpochFacts, SaveFacts
from flodl_core.dispatch.ranges import Range
from flodl_core.elche.record import ElchePhase, ElcheRecord
from flodl_core.errors import CheckpointError
from flodl_core.ids import Mode, RunId, SaveReason
from flodl_core.messages.job import JobRef, RunSpec

SPEC = RunSpec(
    run_id=RunId("00112233445566aa"),
    mode=Mode.CPU_SYNC,
    job=JobRef(kind="recipe", name="charlm", args={}),
    n_samples=100,
    batch_size=4,
    epochs=3,
    epoch_splits=1,
    seed=5,
    gamma=1.0,
    wire_dtype="f32",
    heartbeat_interval_s=1.0,
    heartbeat_timeout_s=30.0,
    progress_timeout_s=300.0,
    stall_timeout_s=300.0,
    rendezvous_timeout_s=120.0,
    save_path="ck",
)
ELCHE = ElcheRecord(
    anchor=12,
    anchor_rank=1,
    smoothed_ms_per_batch=(5.0, 10.0),
    phase=ElchePhase.STABLE,
    calibration_count=9,
    trend_history=(0.01,),
)
FACTS = SaveFacts(
    epoch=1,
    epochs=3,
    epoch_splits=1,
    global_step=33,
    sync_round=17,
    world_size=2,
    ranks_alive=2,
    seed=5,
    batch_size=4,
    n_samples=100,
    samples_trained=124,
    samples_dropped=4,
    coverage=(
        EpochCoverage(1, 100, (Range(20, 8), Range(72, 28)), (Range(68, 4),), first_cycle=14),
    ),
    elche=ELCHE,
    syncs=16,
    arrangement=Arrangement(held=((Range(20, 8),), (Range(76, 24), Range(72, 4)))),
    finished=(EpochFacts(0, 0, "0", 1.5, 100, 0, 2.5, 13, 0.75, "accuracy", "a report"),),
)


def meta(**changes):
    facts = describe_save(FACTS, SPEC, reason=SaveReason.CHECKPOINT)
    told = {"model_sig": "m" * 64, "dataset_sig": "d" * 64} | changes
    whole = BundleMeta(**facts.model_dump(), bundle_id="x", files=())
    return BundleMeta.model_validate_json(whole.model_copy(update=told).model_dump_json())


def numbers(**changes):
    return RunNumbers(
        **(
            {
                "job": "charlm",
                "seed": 5,
                "batch_size": 4,
                "epoch_splits": 1,
                "n_samples": 100,
                "dataset_sig": "d" * 64,
                "model_sig": "m" * 64,
            }
            | changes
        )
    )


def point(bundle=None, world_size=2, mode=Mode.CPU_SYNC):
    return resume_point(bundle or meta(), world_size=world_size, mode=mode, local_buffers={})


def test_the_same_run_differs_in_nothing():
    assert list_differences(meta(), numbers()) == ()


def test_all_differences_are_listed_at_once():
    other = numbers(
        job="digits",
        seed=6,
        batch_size=8,
        epoch_splits=2,
        n_samples=90,
        dataset_sig="e" * 64,
        model_sig="n" * 64,
    )
    assert list_differences(meta(), other) == (
        "job: charlm in the bundle, digits in this run",
        "seed: 5 in the bundle, 6 in this run",
        "batch_size: 4 in the bundle, 8 in this run",
        "epoch_splits: 1 in the bundle, 2 in this run",
        "samples: 100 in the bundle, 90 in this run",
        "dataset: dddddddddddddddd in the bundle, eeeeeeeeeeeeeeee in this run",
        "model: mmmmmmmmmmmmmmmm in the bundle, nnnnnnnnnnnnnnnn in this run",
    )


def test_what_the_coordinator_saved_is_what_it_gets_back():
    found = point()
    assert found.coverage == FACTS.coverage[0]
    assert found.arrangement == FACTS.arrangement
    assert found.finished == FACTS.finished
    assert found.elche == ELCHE
    assert (found.epoch, found.sync_round, found.syncs, found.global_step) == (1, 17, 16, 33)
    assert (found.samples_trained, found.samples_dropped) == (124, 4)


@pytest.mark.parametrize(
    ("bundle", "world_size", "mode"),
    [
        (meta(), 3, Mode.CPU_SYNC),
        (meta(), 2, Mode.CPU_CADENCE),
        (meta(ranks_alive=1), 2, Mode.CPU_SYNC),
    ],
)
def test_who_held_what_is_of_use_to_the_same_whole_world_only(bundle, world_size, mode):
    found = point(bundle, world_size, mode)
    assert found.arrangement is None
    assert found.coverage == FACTS.coverage[0]


def test_another_world_measures_its_cadence_again():
    assert point(world_size=3).elche is None


def test_an_arrangement_that_is_not_what_is_uncovered_is_left_out():
    coverage = meta().coverage
    other = coverage.model_copy(update={"arrangement": SavedArrangement(held=(((20, 8),), ()))})
    assert point(meta(coverage=other)).arrangement is None


def test_between_epochs_there_is_no_coverage():
    coverage = meta().coverage.model_copy(update={"per_epoch": (), "arrangement": None})
    assert point(meta(coverage=coverage, epoch=2)).coverage is None


@pytest.mark.parametrize(
    ("epoch", "words"),
    [
        (SavedEpoch(epoch=0, total_samples=100, uncovered_ranges=()), "epoch 1 is open"),
        (SavedEpoch(epoch=1, total_samples=96, uncovered_ranges=()), "96 samples"),
        (SavedEpoch(epoch=1, total_samples=100, uncovered_ranges=((96, 8),)), "outside"),
        (
            SavedEpoch(
                epoch=1, total_samples=100, uncovered_ranges=((0, 8),), dropped_ranges=((4, 8),)
            ),
            "overlap",
        ),
    ],
)
def test_a_coverage_that_does_not_hold_together_is_refused(epoch, words):
    coverage = SavedCoverage(seed=5, batch_size=4, n_samples=100, per_epoch=(epoch,))
    with pytest.raises(CheckpointError, match=words):
        point(meta(coverage=coverage))


def test_changes_are_said():
    assert describe_changes(meta(), world_size=2, mode=Mode.CPU_SYNC) == ()
    assert describe_changes(meta(), world_size=5, mode=Mode.CPU_SYNC) == (
        "5 ranks now, 2 at the save",
    )
    assert describe_changes(meta(), world_size=5, mode=Mode.CPU_CADENCE) == (
        "5 ranks now, 2 at the save; cadence is measured again",
    )
    assert describe_changes(meta(), world_size=2, mode=Mode.CPU_CADENCE) == (
        "mode cpu_cadence now, cpu_sync at the save",
    )
    assert describe_changes(meta(ranks_alive=1), world_size=2, mode=Mode.CPU_SYNC) == (
        "1 of 2 ranks were there at the save; what was left is shared out anew",
    )
