"""Which generations stay, which make room, and which names belong to a stem."""

import pytest
from checkpoint_examples import write_small

from flodl_core.checkpoint.bundle import check_writable, find_bundle, remove_older
from flodl_core.checkpoint.generations import age_of, generation_stem, present_ages
from flodl_core.checkpoint.weights import load_weights
from flodl_core.errors import CheckpointError

OLD, NEW = "00112233445566aa", "00112233445566bb"


def damage(stem):
    """Flip a bit of the weights: only their digest tells."""
    path = stem.with_name(f"{stem.name}.safetensors")
    body = bytearray(path.read_bytes())
    path.unlink()
    body[-1] ^= 1
    path.write_bytes(body)


def earlier_run(stem, *versions, damaged=0):
    """Let a run save these versions, and damage the newest ones."""
    for version in versions:
        write_small(stem, version, sync_round=version, run_id=OLD)
    for age in range(damaged):
        damage(generation_stem(stem, age))


def save(stem, version, resumed, *, keep):
    """Save as a run does that goes on from a bundle."""
    write_small(stem, version, resumed=resumed, sync_round=version, run_id=NEW)
    remove_older(stem, keep, resumed=resumed)


def versions(stem):
    """The versions that can be gone on from, by age."""
    ages = present_ages(stem)
    found = {age: find_bundle(generation_stem(stem, age)).bundle for age in ages}
    return {age: one.meta.sync_round for age, one in found.items() if one is not None}


def test_a_damaged_newest_bundle_is_written_over_and_the_one_gone_on_from_stays(tmp_path):
    stem = tmp_path / "ck"
    earlier_run(stem, 7, 9, damaged=1)
    resumed = find_bundle(stem).bundle.meta.bundle_id
    save(stem, 10, resumed, keep=2)
    assert (present_ages(stem), versions(stem)) == ((0, 1), {0: 10, 1: 7})
    assert load_weights(tmp_path / "ck.prev")["w"].tolist() == [7] * 4
    save(stem, 11, resumed, keep=2)
    assert (present_ages(stem), versions(stem)) == ((0, 1), {0: 11, 1: 10})


@pytest.mark.parametrize(("keep", "then"), [(2, {0: 11, 1: 10}), (3, {0: 11, 1: 10, 2: 7})])
def test_however_many_are_left_behind_as_many_good_ones_are_kept(tmp_path, keep, then):
    stem = tmp_path / "ck"
    earlier_run(stem, 7, 8, 9, damaged=2)
    resumed = find_bundle(stem).bundle.meta.bundle_id
    save(stem, 10, resumed, keep=keep)
    assert versions(stem) == {0: 10, 2: 7}
    save(stem, 11, resumed, keep=keep)
    assert versions(stem) == then
    for version in range(12, 16):
        save(stem, version, resumed, keep=keep)
    assert versions(stem) == {age: 15 - age for age in range(keep)}


def test_an_older_generation_that_was_asked_for_is_kept_and_what_is_newer_is_not(tmp_path):
    stem = tmp_path / "ck"
    earlier_run(stem, 6, 7, 8, 9)
    resumed = find_bundle(tmp_path / "ck.prev2").bundle.meta.bundle_id
    save(stem, 10, resumed, keep=3)
    assert versions(stem) == {0: 10, 2: 7, 3: 6}
    save(stem, 11, resumed, keep=3)
    assert versions(stem) == {0: 11, 1: 10, 2: 7}


def test_the_files_of_ranks_stay_where_a_bundle_was_left_behind(tmp_path):
    stem = tmp_path / "ck"
    earlier_run(stem, 7, 8, 9, damaged=2)
    (tmp_path / "ck.prev.rank0.pt").write_bytes(b"")
    save(stem, 10, find_bundle(stem).bundle.meta.bundle_id, keep=2)
    assert versions(stem) == {0: 10, 2: 7}
    assert (tmp_path / "ck.prev.rank0.pt").exists()


def test_a_run_that_goes_on_from_elsewhere_keeps_what_lies_at_its_own_stem(tmp_path):
    stem = tmp_path / "ck"
    earlier_run(stem, 7, 8)
    save(stem, 10, "of another stem", keep=3)
    assert versions(stem) == {0: 10, 1: 8, 2: 7}


def test_a_save_of_another_stem_that_is_going_on_is_left_alone(tmp_path):
    others = (
        ".model.v2.safetensors.part",
        ".model.v2.prev.meta.json.part",
        ".model.v2.rank0.pt.part",
        ".model.previous.safetensors.part",
        ".my.model.safetensors.part",
    )
    own = (
        ".model.safetensors.part",
        ".model.prev.outer.safetensors.part",
        ".model.prev12.meta.json.part",
        ".model.rank11.pt.part",
        ".model.prev.rank0.pt.part",
        ".model.trial---.part",
    )
    for name in (*others, *own):
        (tmp_path / name).write_text("half")
    check_writable(tmp_path / "model")
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(others)


def test_a_name_that_is_too_long_for_a_later_save_is_known_before_the_run(tmp_path):
    def can_save(stem):
        try:
            for value in (1, 2, 3):
                write_small(stem, value)
                remove_older(stem, 2)
        except (CheckpointError, OSError):
            return False
        return True

    def passes(stem):
        try:
            check_writable(stem, keep=2)
        except CheckpointError as error:
            fixes.add(error.fix)
            return False
        return True

    fixes = set()
    told = {}
    for length in range(210, 245):
        place = tmp_path / str(length)
        place.mkdir()
        told[length] = passes(place / ("x" * length))
        assert list(place.iterdir()) == []
        if told[length]:
            assert can_save(place / ("x" * length)), length
    assert set(told.values()) == {True, False}
    assert fixes == {"give a --save-path with a shorter name"}


def test_only_a_stems_own_generations_have_an_age(tmp_path):
    stem = tmp_path / "model.v2"
    names = ("model.v2", "model.v2.prev", "model.v2.prev2", "model.v2.prev10")
    assert [age_of(name, stem) for name in names] == [0, 1, 2, 10]
    for name in ("model", "model.v2.prev1", "model.v2.prev0", "model.v2.previous", "model_v2"):
        assert age_of(name, stem) is None
