"""The velocity of an outer optimizer beside the weights: written, kept, found, or told gone."""

from dataclasses import replace

import numpy as np
import pytest
from checkpoint_examples import facts, full_geometry, full_values, segment, small_geometry
from checkpoint_examples import geometry as make_geometry
from safetensors.numpy import load_file

from flodl_core.checkpoint.bundle import (
    check_writable,
    find_bundle,
    remove_older,
    stem_of,
    write_bundle,
)
from flodl_core.checkpoint.meta import SavedOuter
from flodl_core.checkpoint.regions import read_velocity
from flodl_core.checkpoint.resume import describe_outer, keeps_velocity
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.errors import CheckpointError
from flodl_core.ids import OuterKind
from flodl_core.messages.job import OuterSpec

NESTEROV = SavedOuter(kind=OuterKind.NESTEROV, lr=0.7, momentum=0.9, steps_next=True)


def write(stem, value, *, velocity=None, outer=NESTEROV, version=30):
    """A bundle of four parameters of `value`, with a velocity where one is given."""
    moving = None if velocity is None else np.full(4, velocity, np.float32)
    values = SavedConsensus(
        params=np.full(4, value, np.float32),
        buffers=np.zeros(0, np.float32),
        local_buffers={},
        velocity=moving,
    )
    told = facts(outer=outer, sync_round=version)
    return write_bundle(stem, small_geometry(), values, facts=told)


def velocity_at(stem):
    return read_velocity(find_bundle(stem).bundle.velocity, small_geometry())


def test_a_velocity_comes_back_bit_by_bit_in_f32_whatever_its_parameter_is(tmp_path):
    params, buffers, local = full_values()
    velocity = np.random.default_rng(1).normal(size=98).astype(np.float32)
    values = SavedConsensus(params=params, buffers=buffers, local_buffers=local, velocity=velocity)
    bundle = write_bundle(tmp_path / "ck", full_geometry(), values, facts=facts(outer=NESTEROV))
    assert bundle.velocity == tmp_path / "ck.outer.safetensors"
    found = read_velocity(bundle.velocity, full_geometry())
    for part in full_geometry().params:
        place = slice(part.offset, part.offset + part.numel)
        assert found[place].tobytes() == velocity[place].tobytes(), part.name
    stored = load_file(bundle.velocity)
    assert sorted(stored) == ["brain", "deep", "empty", "phase", "scalar", "short", "w", "wide"]
    assert {one.dtype.name for one in stored.values()} == {"float32"}
    assert stored["w"].tolist() == velocity[:6].reshape(2, 3).tolist()
    assert (stored["phase"].shape, stored["deep"].shape) == ((2, 2), (1, 2))


def test_the_meta_names_the_rule_and_the_digest_of_the_velocity(tmp_path):
    meta = write(tmp_path / "ck", 1.0, velocity=0.5).meta
    assert meta.outer == NESTEROV
    assert [entry.suffix for entry in meta.files] == [".safetensors", ".outer.safetensors"]
    assert len(meta.entry(".outer.safetensors").sha256) == 64
    assert write(tmp_path / "other", 1.0, outer=None).meta.outer is None


def test_without_a_velocity_there_is_no_such_file_and_an_older_one_goes_away(tmp_path):
    write(tmp_path / "ck", 1.0, velocity=0.5)
    bundle = write(tmp_path / "ck", 2.0)
    assert bundle.velocity is None
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "ck.meta.json",
        "ck.prev.meta.json",
        "ck.prev.outer.safetensors",
        "ck.prev.safetensors",
        "ck.safetensors",
    ]
    assert velocity_at(tmp_path / "ck.prev").tolist() == [0.5] * 4
    write(tmp_path / "ck", 3.0, velocity=0.75)
    remove_older(tmp_path / "ck", 2)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert "ck.prev.outer.safetensors" not in names
    assert len(names) == 5
    assert velocity_at(tmp_path / "ck").tolist() == [0.75] * 4


def test_older_generations_keep_their_own_velocity_and_go_with_it(tmp_path):
    for number in range(1, 5):
        write(tmp_path / "ck", number, velocity=number / 8, version=number)
        remove_older(tmp_path / "ck", 3)
    stems = ["ck", "ck.prev", "ck.prev2"]
    assert [velocity_at(tmp_path / stem)[0] for stem in stems] == [0.5, 0.375, 0.25]
    assert len(list(tmp_path.iterdir())) == 9


def test_the_file_of_a_velocity_names_its_bundle(tmp_path):
    bundle = write(tmp_path / "ck", 1.0, velocity=0.5)
    assert stem_of(bundle.velocity) == tmp_path / "ck"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.unlink(), "ck.outer.safetensors is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "bytes, not"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x01"), "its digest is another"),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), "no whole weights file"),
    ],
)
def test_a_bundle_whose_velocity_is_gone_is_complete_and_says_so(tmp_path, spoil, why):
    spoil(write(tmp_path / "ck", 1.0, velocity=0.5).velocity)
    search = find_bundle(tmp_path / "ck")
    assert search.skipped == ()
    assert search.bundle.velocity is None
    assert why in search.bundle.outer_flaw
    spec = OuterSpec(kind=OuterKind.NESTEROV, lr=0.7, momentum=0.9)
    (told,) = describe_outer(search.bundle, spec)
    assert told.startswith("the outer velocity begins at 0: ")
    assert why in told


def test_a_velocity_of_another_save_is_not_taken_for_this_ones(tmp_path):
    first = write(tmp_path / "ck", 1.0, velocity=0.5)
    other = write(tmp_path / "other", 1.0, velocity=0.5)
    first.velocity.write_bytes(other.velocity.read_bytes())
    assert "of two saves" in find_bundle(tmp_path / "ck", verify=False).bundle.outer_flaw


def test_a_velocity_that_is_not_finite_is_not_saved(tmp_path):
    write(tmp_path / "ck", 1.0, velocity=0.5)
    with pytest.raises(CheckpointError, match="the velocity of w holds values"):
        write(tmp_path / "ck", 2.0, velocity=np.inf)
    bundle = find_bundle(tmp_path / "ck").bundle
    assert read_velocity(bundle.velocity, small_geometry()).tolist() == [0.5] * 4


def frozen_geometry():
    parts = [segment("w", "float32", (4,), 0), segment("base", "float32", (4,), 16)]
    return make_geometry([parts[0], replace(parts[1], trainable=False)])


@pytest.mark.parametrize("thawed", [False, True])
def test_parameters_that_never_moved_take_no_room(tmp_path, thawed):
    velocity = np.zeros(20, np.float32)
    velocity[:4] = 1
    velocity[16:] = 2 * thawed
    values = SavedConsensus(
        params=np.zeros(20, np.float32),
        buffers=np.zeros(0, np.float32),
        local_buffers={},
        velocity=velocity,
    )
    bundle = write_bundle(tmp_path / "ck", frozen_geometry(), values, facts=facts(outer=NESTEROV))
    assert sorted(load_file(bundle.velocity)) == (["base", "w"] if thawed else ["w"])
    assert read_velocity(bundle.velocity, frozen_geometry()).tolist() == velocity.tolist()


def test_a_velocity_of_another_model_is_named(tmp_path):
    bundle = write(tmp_path / "ck", 1.0, velocity=0.5)
    with pytest.raises(CheckpointError, match="holds no head"):
        read_velocity(bundle.velocity, make_geometry([segment("head", "float32", (4,), 0)]))
    with pytest.raises(CheckpointError, match="w has shape"):
        read_velocity(bundle.velocity, small_geometry(5))


def test_a_place_without_room_for_the_velocity_is_refused_at_the_start(tmp_path):
    huge = make_geometry([replace(segment("p", "float32", (1,), 0), numel=2**50)])
    check_writable(tmp_path / "ck", huge)
    with pytest.raises(CheckpointError, match="MiB free"):
        check_writable(tmp_path / "ck", huge, has_velocity=True)


@pytest.mark.parametrize(
    ("saved", "now", "keeps", "told"),
    [
        (None, None, False, ()),
        (NESTEROV, ("nesterov", 0.7, 0.9), True, ()),
        (
            NESTEROV,
            ("nesterov", 0.5, 0.8),
            True,
            ("outer_lr 0.5 now, 0.7 at the save", "outer_momentum 0.8 now, 0.9 at the save"),
        ),
        (
            NESTEROV,
            ("slowmo", 1.0, 0.9),
            False,
            ("outer slowmo now, nesterov at the save; its velocity begins at 0",),
        ),
        (
            None,
            ("slowmo", 1.0, 0.9),
            False,
            ("outer slowmo now, avg at the save; its velocity begins at 0",),
        ),
        (NESTEROV, None, False, ("outer avg now, nesterov at the save",)),
    ],
)
def test_what_a_resume_does_with_another_rule_is_told(tmp_path, saved, now, keeps, told):
    bundle = write(tmp_path / "ck", 1.0, outer=saved)
    spec = None if now is None else OuterSpec(kind=OuterKind(now[0]), lr=now[1], momentum=now[2])
    assert keeps_velocity(bundle.meta, spec) is keeps
    assert describe_outer(bundle, spec) == told
