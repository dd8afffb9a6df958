"""Which checkpoint is found, what is said of others, and what is refused before the window."""

import os
import shutil

import numpy as np
import pytest
from small_model import GEOMETRY, geometry_of

from flodl_core.checkpoint.bundle import write_bundle
from flodl_core.checkpoint.meta import BundleFacts, SavedCoverage, SavedOuter, SavedRankFile
from flodl_core.checkpoint.resume import RunNumbers
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.errors import ConfigError
from flodl_core.ids import Mode, OuterKind, Round, RunId, SaveReason
from flodl_core.messages.job import OuterSpec
from flodl_core.planes.velocity import OuterState
from flodl_core.roles.formation import beginning_of
from flodl_core.roles.resume_search import ResumeWish, find_resume, load_resume
from flodl_core.telemetry.run_directory import RunDirectory

NUMBERS = RunNumbers(
    job="charlm",
    seed=5,
    batch_size=4,
    epoch_splits=1,
    n_samples=100,
    dataset_sig="d" * 64,
    model_sig="m" * 64,
)


NESTEROV = OuterSpec(kind=OuterKind.NESTEROV, lr=0.5, momentum=0.5)


def save(stem, version=3, *, at="2031-01-01T00:00:00Z", job="charlm", epoch=1, velocity=None):
    """Write a bundle of two parameters that hold the version."""
    rank_file = SavedRankFile(
        rank=0, host="red", device="cpu:0", suffix=".rank0.pt", sha256="ab", nbytes=3, folder="/x"
    )
    facts = BundleFacts(
        run_id="00112233445566aa",
        job=job,
        mode=Mode.CPU_SYNC,
        model_sig="m" * 64,
        dataset_sig="d" * 64,
        epoch=epoch,
        epochs=3,
        global_step=7,
        sync_round=version,
        world_size=1,
        ranks_alive=1,
        reason=SaveReason.CHECKPOINT,
        coverage=SavedCoverage(seed=5, batch_size=4, n_samples=100),
        rank_files=(rank_file,),
        created_at=at,
        outer=SavedOuter(kind=OuterKind.NESTEROV, lr=0.7, momentum=0.9, steps_next=True),
    )
    write_bundle(
        stem,
        GEOMETRY,
        SavedConsensus(
            params=np.full(16, version, np.float32),
            buffers=np.zeros(0, np.float32),
            local_buffers={},
            velocity=None if velocity is None else np.full(16, velocity, np.float32),
        ),
        facts=facts,
    )


def run_of(base, number, *, is_live=False, **bundle):
    """A run's directory with a checkpoint in it; runs are made the oldest first."""
    directory = RunDirectory.create(base, "charlm", RunId(f"{number:016x}"))
    os.utime(directory.path / "live", (number, number))
    directory.write_save_stem(directory.checkpoint_stem)
    if bundle:
        save(directory.checkpoint_stem, **bundle)
    if not is_live:
        directory.close()
    return directory


def wanted(base, where="auto", save_stem=None):
    return ResumeWish(where=str(where), source="flag", base=base, save_stem=save_stem, job="charlm")


def test_a_stem_a_run_and_a_directory_of_runs_each_mean_a_checkpoint(tmp_path):
    run = run_of(tmp_path / "runs", 1, version=3)
    for where in (run.checkpoint_stem, run.path, tmp_path / "runs"):
        assert find_resume(wanted(tmp_path, where)).bundle.meta.sync_round == 3
    save(tmp_path / "own" / "consensus", 4)
    assert find_resume(wanted(tmp_path, tmp_path / "own")).bundle.meta.sync_round == 4


def test_a_run_that_saved_elsewhere_is_found_there(tmp_path):
    run = run_of(tmp_path / "runs", 1)
    save(tmp_path / "elsewhere" / "model", 6)
    run.write_save_stem(tmp_path / "elsewhere" / "model")
    assert find_resume(wanted(tmp_path, run.path)).bundle.meta.sync_round == 6


@pytest.mark.parametrize("way", [shutil.move, shutil.copytree])
@pytest.mark.parametrize("told", [False, True])
def test_a_run_that_was_moved_or_copied_is_gone_on_from_where_it_lies_now(tmp_path, way, told):
    run = run_of(tmp_path / "runs", 1, version=3)
    if told:
        (run.path / "save_stem").write_text(f"{run.checkpoint_stem}\n")
    way(run.path, tmp_path / "moved" / "renamed")
    if way is shutil.copytree:
        save(run.checkpoint_stem, 8)
    for where in (tmp_path / "moved" / "renamed", tmp_path / "moved"):
        found = find_resume(wanted(tmp_path, where)).bundle
        assert found.stem == tmp_path / "moved" / "renamed" / "checkpoints" / "consensus"
        assert found.meta.sync_round == 3


def test_auto_takes_the_newest_of_the_same_job_by_when_it_was_saved(tmp_path):
    run_of(tmp_path, 1, version=9, at="2031-01-02T00:00:00Z")
    run_of(tmp_path, 2, version=5, at="2031-01-01T00:00:00Z")
    run_of(tmp_path, 3, version=7, at="2031-01-03T00:00:00Z", job="digits")
    assert find_resume(wanted(tmp_path)).bundle.meta.sync_round == 9
    save(tmp_path / "model", 11, at="2031-01-04T00:00:00Z")
    assert find_resume(wanted(tmp_path, save_stem=tmp_path / "model")).bundle.meta.sync_round == 11


def test_what_is_skipped_is_named_with_its_reason(tmp_path):
    run_of(tmp_path, 1, version=2)
    torn = run_of(tmp_path, 2, version=5, at="2031-01-09T00:00:00Z")
    with (torn.path / "checkpoints" / "consensus.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"X")
    live = run_of(tmp_path, 3, is_live=True, version=7)
    try:
        found = find_resume(wanted(tmp_path))
    finally:
        live.close()
    assert found.bundle.meta.sync_round == 2
    told = "\n".join(found.lines)
    assert f"skipped {live.path}: its run goes on" in told
    assert "consensus.safetensors is damaged: its digest is another" in told
    assert "version 2, epoch 2, step 7, saved 2031-01-01T00:00:00Z" in told


def test_where_nothing_is_complete_it_says_what_was_there(tmp_path):
    stem = tmp_path / "model"
    save(stem)
    (tmp_path / "model.meta.json").unlink()
    with pytest.raises(ConfigError, match=r"checkpoint there .*meta file is missing"):
        find_resume(wanted(tmp_path, stem))
    with pytest.raises(ConfigError, match="no complete checkpoint of job charlm under"):
        find_resume(wanted(tmp_path / "none"))


def load(tmp_path, *, events=3, numbers=NUMBERS, geometry=GEOMETRY, outer=None, **bundle):
    save(tmp_path / "model", **bundle)
    return reload(tmp_path, events=events, numbers=numbers, geometry=geometry, outer=outer)


def reload(tmp_path, *, events=3, numbers=NUMBERS, geometry=GEOMETRY, outer=None):
    asked = wanted(tmp_path, tmp_path / "model")
    found = find_resume(asked)
    return load_resume(found, asked, numbers=numbers, events=events, geometry=geometry, outer=outer)


def test_values_and_files_of_ranks_come_with_it(tmp_path):
    loaded = load(tmp_path)
    spec = loaded.spec_for(None)
    assert (spec.sync_round, spec.global_step) == (3, 7)
    assert spec.stem == str(tmp_path / "model")
    assert [(one.rank, one.host, one.folder) for one in spec.rank_files] == [(0, "red", "/x")]
    regions = loaded.take_regions()
    assert regions[Round.PARAMS].tolist() == [3.0, 3.0] + [0.0] * 14
    assert loaded.take_regions() == {}


def test_the_velocity_comes_with_the_values_where_the_rule_is_the_same(tmp_path):
    loaded = load(tmp_path, velocity=0.25, outer=NESTEROV)
    beginning = beginning_of(loaded, NESTEROV)
    assert beginning.outer.velocity.tolist() == [0.25] * 2 + [0.0] * 14
    assert beginning.outer.steps_next
    assert sorted(beginning.regions) == [Round.BUFFERS, Round.PARAMS]
    assert loaded.velocity is None


def test_a_velocity_of_0_has_no_file_and_the_next_average_is_stepped(tmp_path):
    loaded = load(tmp_path, outer=NESTEROV)
    assert beginning_of(loaded, NESTEROV).outer == OuterState(None, steps_next=True)


def test_a_velocity_that_is_gone_or_of_another_rule_is_not_taken_up(tmp_path):
    slowmo = OuterSpec(kind=OuterKind.SLOWMO, lr=1.0, momentum=0.9)
    for outer in (slowmo, None):
        assert beginning_of(load(tmp_path, velocity=0.25, outer=outer), outer).outer is None
    (tmp_path / "model.outer.safetensors").unlink()
    loaded = reload(tmp_path, outer=NESTEROV)
    assert beginning_of(loaded, NESTEROV).outer == OuterState(None, steps_next=False)


@pytest.mark.parametrize("newest", ["weights", "velocity"])
def test_values_of_a_later_save_are_not_taken_for_those_of_the_bundle_that_was_found(
    tmp_path, newest
):
    save(tmp_path / "model", velocity=0.25)
    asked = wanted(tmp_path, tmp_path / "model")
    found = find_resume(asked)
    if newest == "weights":
        save(tmp_path / "model", 4)
    else:
        save(tmp_path / "later", velocity=0.5)
        shutil.copy(tmp_path / "later.outer.safetensors", tmp_path / "model.outer.safetensors")
    with pytest.raises(ConfigError, match="another run still saves there") as refusal:
        load_resume(found, asked, numbers=NUMBERS, events=3, geometry=GEOMETRY, outer=NESTEROV)
    assert refusal.value.exit_code == 2
    assert "stop that run, or wait for its end" in refusal.value.fix


def test_all_differences_are_in_the_refusal(tmp_path):
    other = RunNumbers(
        job="charlm",
        seed=6,
        batch_size=8,
        epoch_splits=1,
        n_samples=100,
        dataset_sig="d" * 64,
        model_sig="m" * 64,
    )
    with pytest.raises(ConfigError) as refusal:
        load(tmp_path, numbers=other)
    assert refusal.value.exit_code == 2
    assert "seed: 5 in the bundle, 6 in this run" in str(refusal.value)
    assert "batch_size: 4 in the bundle, 8 in this run" in str(refusal.value)


def test_a_run_that_is_done_is_not_gone_on_with(tmp_path):
    with pytest.raises(ConfigError, match="has all 3 epochs; nothing is left to train"):
        load(tmp_path, epoch=3)


def test_weights_of_another_model_are_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match="holds no absent"):
        load(tmp_path, geometry=geometry_of("absent"))
