import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoint_examples import (
    expected_values,
    facts,
    full_geometry,
    full_values,
    segment,
    small_geometry,
    write_small,
)
from checkpoint_examples import geometry as make_geometry

from flodl_core.checkpoint.bundle import (
    check_writable,
    find_bundle,
    later_lack_of_room,
    remove_older,
    stem_of,
    write_bundle,
)
from flodl_core.checkpoint.meta import BundleMeta, SavedRankFile
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.checkpoint.weights import load_weights, weights_path
from flodl_core.errors import CheckpointError


def write_full(stem, **given):
    params, buffers, local = full_values()
    return write_bundle(
        stem,
        full_geometry(),
        SavedConsensus(
            params=params,
            buffers=buffers,
            local_buffers=local,
        ),
        facts=facts(**given),
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_every_name_of_the_state_dict_comes_back_with_its_own_dtype_and_value(tmp_path):
    write_full(tmp_path / "ck")
    loaded = load_weights(tmp_path / "ck")
    expected = expected_values()
    assert loaded.keys() == expected.keys()
    for name, value in expected.items():
        assert loaded[name].dtype == value.dtype, name
        assert loaded[name].shape == value.shape, name
        np.testing.assert_array_equal(loaded[name], value, err_msg=name)


def test_a_bundle_is_two_files_and_leaves_nothing_else(tmp_path):
    write_full(tmp_path / "deep" / "ck")
    assert names(tmp_path / "deep") == ["ck.meta.json", "ck.safetensors"]


def test_the_meta_says_what_was_saved_and_where_with_digests(tmp_path):
    bundle = write_full(tmp_path / "ck")
    meta = json.loads((tmp_path / "ck.meta.json").read_text())
    body = (tmp_path / "ck.safetensors").read_bytes()
    assert meta["schema_version"] == 1
    assert (meta["epoch"], meta["global_step"], meta["sync_round"]) == (1, 120, 30)
    assert (meta["world_size"], meta["reason"]) == (4, "checkpoint")
    assert meta["coverage"]["per_epoch"][0]["uncovered_ranges"] == [[64, 32]]
    assert meta["files"] == [
        {
            "suffix": ".safetensors",
            "sha256": hashlib.sha256(body).hexdigest(),
            "nbytes": len(body),
            "host": "red",
        }
    ]
    assert bundle.meta == BundleMeta.model_validate(meta)
    assert bundle.weights == tmp_path / "ck.safetensors"


def test_a_written_bundle_is_found_and_nothing_is_skipped(tmp_path):
    bundle = write_full(tmp_path / "ck")
    found = find_bundle(tmp_path / "ck")
    assert found.bundle == bundle
    assert found.skipped == ()


def test_nothing_is_found_where_nothing_is(tmp_path):
    assert find_bundle(tmp_path / "ck").bundle is None
    with pytest.raises(CheckpointError, match="no complete bundle"):
        weights_path(tmp_path / "ck")


@pytest.mark.parametrize("given", ["ck", "ck.safetensors", "ck.meta.json"])
def test_a_bundle_is_named_by_its_stem_or_one_of_its_files(tmp_path, given):
    write_small(tmp_path / "ck", 3)
    assert stem_of(tmp_path / given) == tmp_path / "ck"
    assert load_weights(tmp_path / given)["w"].tolist() == [3] * 4


def test_other_dots_belong_to_the_stem(tmp_path):
    assert stem_of(tmp_path / "model.v1") == tmp_path / "model.v1"


def test_older_bundles_are_kept_until_they_are_removed_the_newest_first_by_name(tmp_path):
    stem = tmp_path / "ck"
    for value in (1, 2, 3, 4):
        write_small(stem, value, sync_round=value)
        remove_older(stem, 3)
    assert load_weights(stem)["w"].tolist() == [4] * 4
    assert load_weights(tmp_path / "ck.prev")["w"].tolist() == [3] * 4
    assert load_weights(tmp_path / "ck.prev2")["w"].tolist() == [2] * 4
    assert names(tmp_path) == [
        "ck.meta.json", "ck.prev.meta.json", "ck.prev.safetensors",
        "ck.prev2.meta.json", "ck.prev2.safetensors", "ck.safetensors",
    ]  # fmt: skip


@pytest.mark.parametrize("keep", [1, 2])
def test_fewer_generations_may_be_kept_and_rank_files_go_with_theirs(tmp_path, keep):
    stem = tmp_path / "ck"
    for value in (1, 2, 3):
        write_small(stem, value, sync_round=value)
    for name in ("ck.rank0.pt", "ck.prev.rank0.pt", "ck.prev2.rank0.pt", "ck.prev2.rank11.pt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "ck.prev2.notes").write_bytes(b"")
    remove_older(stem, keep)
    left = {1: ["ck"], 2: ["ck", "ck.prev"]}[keep]
    suffixes = (".meta.json", ".rank0.pt", ".safetensors")
    expected = [stem + suffix for stem in left for suffix in suffixes]
    assert names(tmp_path) == sorted([*expected, "ck.prev2.notes"])


def test_every_generation_is_looked_at_from_the_newest_on(tmp_path):
    stem = tmp_path / "ck"
    for value in (1, 2, 3):
        write_small(stem, value, sync_round=value)
    (tmp_path / "ck.meta.json").unlink()
    (tmp_path / "ck.prev.safetensors").write_bytes(b"short")
    search = find_bundle(stem)
    assert search.bundle.meta.sync_round == 1
    assert search.bundle.stem == tmp_path / "ck.prev2"
    assert [one.path.name for one in search.skipped] == ["ck", "ck.prev"]


def test_a_bundle_is_complete_without_the_files_of_ranks_and_names_them(tmp_path):
    one = SavedRankFile(
        rank=3, host="blue", device="cuda:1", suffix=".rank3.pt", sha256="ab", nbytes=7, folder="/x"
    )
    write_small(tmp_path / "ck", 1, rank_files=(one,))
    assert find_bundle(tmp_path / "ck").bundle.meta.rank_files == (one,)


def test_values_that_are_not_finite_are_never_saved_and_the_last_good_bundle_stays(tmp_path):
    stem = tmp_path / "ck"
    write_small(stem, 1)
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(CheckpointError, match="w holds values that are not finite"):
            write_small(stem, bad)
    assert load_weights(stem)["w"].tolist() == [1] * 4
    assert names(tmp_path) == ["ck.meta.json", "ck.safetensors"]


@pytest.mark.parametrize(("dtype", "value"), [("float16", 7e4), ("bfloat16", 3.4e38)])
def test_a_value_that_its_own_dtype_cannot_hold_is_not_saved_as_infinity(tmp_path, dtype, value):
    with pytest.raises(CheckpointError, match="p holds values that are not finite"):
        write_bundle(
            tmp_path / "ck",
            make_geometry([segment("p", dtype, (2,), 0)]),
            SavedConsensus(
                params=np.array([1, value], np.float32),
                buffers=np.zeros(0, np.float32),
                local_buffers={},
            ),
            facts=facts(),
        )


def test_a_missing_or_wrong_local_buffer_is_named(tmp_path):
    params, buffers, local = full_values()
    for broken, message in (
        ({"count": local["count"]}, "mask"),
        ({**local, "mask": local["count"]}, "mask came as int64"),
    ):
        with pytest.raises(CheckpointError, match=message):
            write_bundle(
                tmp_path / "ck",
                full_geometry(),
                SavedConsensus(
                    params=params,
                    buffers=buffers,
                    local_buffers=broken,
                ),
                facts=facts(),
            )
    assert not list(tmp_path.iterdir())


def test_two_tensors_of_one_name_are_refused(tmp_path):
    twice = make_geometry([segment("p", "float32", (2,), 0), segment("p", "float32", (2,), 16)])
    with pytest.raises(CheckpointError, match="two tensors are named p"):
        write_bundle(
            tmp_path / "ck",
            twice,
            SavedConsensus(
                params=np.zeros(18, np.float32),
                buffers=np.zeros(0, np.float32),
                local_buffers={},
            ),
            facts=facts(),
        )


def damage_meta_gone(stem):
    stem.with_name("ck.meta.json").unlink()


def damage_weights_gone(stem):
    stem.with_name("ck.safetensors").unlink()


def damage_weights_cut(stem):
    os.truncate(stem.with_name("ck.safetensors"), 40)


def damage_meta_no_json(stem):
    stem.with_name("ck.meta.json").write_text("{")


def damage_meta_newer(stem):
    path = stem.with_name("ck.meta.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99}))


def damage_bit(stem):
    path = stem.with_name("ck.safetensors")
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)


def damage_weights_of_another_save(stem):
    write_small(stem.with_name("other"), 9)
    shutil.copy(stem.with_name("other.safetensors"), stem.with_name("ck.safetensors"))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (damage_meta_gone, "meta file is missing"),
        (damage_weights_gone, "ck.safetensors is missing"),
        (damage_weights_cut, "has 40 bytes"),
        (damage_meta_no_json, "is no meta file"),
        (damage_meta_newer, "newer than ours"),
        (damage_bit, "its digest is another"),
        (damage_weights_of_another_save, "of two saves"),
    ],
)
def test_an_incomplete_bundle_is_skipped_by_name_and_the_one_before_is_used(tmp_path, damage, why):
    stem = tmp_path / "ck"
    write_small(stem, 1)
    write_small(stem, 2)
    damage(stem)
    found = find_bundle(stem)
    assert found.bundle.stem == tmp_path / "ck.prev"
    assert [(one.path, why in one.why) for one in found.skipped] == [(stem, True)]
    assert load_weights(stem)["w"].tolist() == [1] * 4


@pytest.mark.parametrize(
    "damage", [damage_meta_gone, damage_weights_cut, damage_weights_of_another_save]
)
def test_an_incomplete_bundle_never_becomes_the_previous_one(tmp_path, damage):
    stem = tmp_path / "ck"
    write_small(stem, 1)
    write_small(stem, 2)
    damage(stem)
    with pytest.raises(CheckpointError):
        write_small(stem, np.nan)
    assert load_weights(stem)["w"].tolist() == [1] * 4
    write_small(stem, 3)
    assert load_weights(stem)["w"].tolist() == [3] * 4
    assert load_weights(tmp_path / "ck.prev")["w"].tolist() == [1] * 4


def test_digests_are_left_alone_when_not_asked_for(tmp_path):
    write_small(tmp_path / "ck", 1)
    damage_bit(tmp_path / "ck")
    assert find_bundle(tmp_path / "ck", verify=False).bundle is not None
    assert find_bundle(tmp_path / "ck").bundle is None


def test_a_place_that_cannot_be_written_is_known_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        check_writable(tmp_path / "file" / "ck")
    check_writable(tmp_path / "new" / "ck", small_geometry())
    assert names(tmp_path / "new") == []


def test_a_lack_of_room_is_known_before_the_run(tmp_path):
    huge = make_geometry([segment("w", "float32", (2**50,), 0)])
    with pytest.raises(CheckpointError, match="MiB free and a bundle takes"):
        check_writable(tmp_path / "ck", huge)


def test_a_lack_of_room_for_later_saves_is_known_before_the_run(tmp_path):
    """Of the free room a bundle takes two fifths: two fit, the third that a save needs does not."""
    free = shutil.disk_usage(tmp_path).free
    geometry = make_geometry([segment("w", "float32", (free // 10,), 0)])
    stem = tmp_path / "ck"
    check_writable(stem, geometry, keep=2)
    lack = later_lack_of_room(stem, geometry, has_velocity=False, keep=2)
    assert lack is not None
    assert "2 kept checkpoints and the one that is being written" in lack
    assert later_lack_of_room(stem, geometry, has_velocity=False, keep=1) is None
    with (tmp_path / "ck.prev.safetensors").open("wb") as older:
        older.truncate(free)
    assert later_lack_of_room(stem, geometry, has_velocity=False, keep=2) is None


def test_a_dtype_that_cannot_be_stored_is_known_before_the_run(tmp_path):
    with pytest.raises(CheckpointError, match="p has dtype float8_e5m2"):
        check_writable(tmp_path / "ck", make_geometry([segment("p", "float8_e5m2", (1,), 0)]))


def test_what_a_killed_process_left_half_written_is_removed_at_the_start(tmp_path):
    for left in (".ck.safetensors.part", ".ck.prev.meta.json.part"):
        (tmp_path / left).write_text("half")
    check_writable(tmp_path / "ck")
    assert names(tmp_path) == []


KILLED_SAVES = """
import json, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from checkpoint_examples import write_small
from flodl_core.checkpoint.bundle import check_writable, find_bundle
from flodl_core.checkpoint.weights import load_weights

WATCHED = ("os.rename", "os.link", "os.remove", "open", "os.truncate")

def save_and_die(stem, at):
    seen = 0
    def watch(event, args):
        nonlocal seen
        if event in WATCHED:
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(watch)
    write_small(stem, 3)
    os._exit(0)

for at in range(1, 100):
    stem = Path(sys.argv[2]) / str(at) / "ck"
    stem.parent.mkdir()
    write_small(stem, 1)
    write_small(stem, 2)
    child = os.fork()
    if child == 0:
        save_and_die(stem, at)
    _, status = os.waitpid(child, 0)
    found = find_bundle(stem).bundle
    after_kill = load_weights(stem)["w"].tolist() if found else None
    check_writable(stem)
    left = [path.name for path in stem.parent.iterdir() if path.name.startswith(".")]
    write_small(stem, 4)
    then = load_weights(stem)["w"][0].item()
    print(json.dumps([status == signal.SIGKILL, after_kill, left, then]))
    if status == 0:
        break
"""


@pytest.mark.slow
@pytest.mark.processes
def test_killed_at_any_point_of_a_save_a_complete_bundle_remains(tmp_path):
    """The process dies at its Nth rename, link, unlink or open of a save, for every N."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED_SAVES, str(Path(__file__).parent), tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [killed for killed, *_ in rows] == [True] * (len(rows) - 1) + [False]
    assert len(rows) > 15
    for _, after_kill, left, after_next_save in rows:
        assert after_kill in ([2] * 4, [3] * 4)
        assert left == []
        assert after_next_save == 4
    assert rows[0][1] == [2] * 4
    assert rows[-1][1] == [3] * 4


def test_a_full_disk_is_an_error_that_names_the_file_and_keeps_the_bundle(tmp_path):
    stem = tmp_path / "ck"
    write_small(stem, 1)
    import resource
    import signal

    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limit[1]))
    try:
        with pytest.raises(CheckpointError, match=r"cannot write .*ck\.safetensors") as caught:
            write_small(stem, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, previous)
    assert caught.value.__cause__.errno == errno.EFBIG
    assert load_weights(stem)["w"].tolist() == [1] * 4
    assert names(tmp_path) == ["ck.meta.json", "ck.safetensors"]
