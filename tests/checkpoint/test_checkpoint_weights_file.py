import json
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy
from checkpoint_examples import (
    COUNT,
    c_strides,
    expected_values,
    facts,
    full_geometry,
    full_values,
    geometry,
    segment,
    view,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.checkpoint.bundle import write_bundle
from flodl_core.checkpoint.tensors import PIECE_ELEMENTS, list_tensors
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.checkpoint.weights import load_weights, read_weights
from flodl_core.checkpoint.weights_file import read_header_untrusted
from flodl_core.checkpoint.whole_file import writing_whole
from flodl_core.errors import CheckpointError


def write(stem, geo, params, buffers=None, local=None):
    return write_bundle(
        stem,
        geo,
        SavedConsensus(
            params=params,
            buffers=np.zeros(0, np.float32) if buffers is None else buffers,
            local_buffers=local or {},
        ),
        facts=facts(),
    ).weights


def values_of(entry):
    pieces = [piece.copy() for piece in entry.pieces()]
    return np.concatenate(pieces) if pieces else np.zeros(0)


def test_the_library_reads_the_file_and_sees_the_same_tensors(tmp_path):
    params, buffers, local = full_values()
    path = write(tmp_path / "ck", full_geometry(), params, buffers, local)
    with safetensors.safe_open(path, framework="np") as file:
        assert set(file.keys()) == set(expected_values())
        assert file.metadata()["format"] == "pt"
        for name, expected in expected_values().items():
            if name == "brain":
                continue
            found = file.get_tensor(name)
            if name == "deep":
                assert found.tolist() == [[5.0, -6.0]]
                continue
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_torch_loads_it_strictly_in_one_call(tmp_path):
    torch = pytest.importorskip("torch")
    import safetensors.torch

    params, buffers, local = full_values()
    path = write(tmp_path / "ck", full_geometry(), params, buffers, local)
    loaded = safetensors.torch.load_file(path)
    assert loaded["brain"].dtype is torch.bfloat16
    assert loaded["brain"][:3].tolist() == [1.0, 1.0, 1.015625]
    assert loaded["phase"].dtype is torch.complex64
    assert loaded["short"].dtype is torch.float16
    assert loaded["wide"].dtype is torch.float64
    assert loaded["count"].item() == COUNT

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("w", "scalar", "empty", "short", "brain", "wide", "phase", "deep"):
                shape, dtype = {
                    "w": ((2, 3), torch.float32), "scalar": ((), torch.float32),
                    "empty": ((0,), torch.float32), "short": ((3,), torch.float16),
                    "brain": ((4,), torch.bfloat16), "wide": ((2,), torch.float64),
                    "phase": ((2,), torch.complex64), "deep": ((1,), torch.complex128),
                }[name]  # fmt: skip
                self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape, dtype=dtype)))
            self.tied = self.w
            self.register_buffer("turned", self.w.detach().T)
            self.register_buffer("corner", self.w.detach()[:, 1])
            self.register_buffer("running", torch.zeros(3))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))
            self.register_buffer("mask", torch.zeros(3, dtype=torch.bool))

    model = Model()
    state = {name: torch.from_numpy(value) for name, value in load_weights(tmp_path / "ck").items()}
    model.load_state_dict(state, strict=True)
    assert model.deep.tolist() == [5 - 6j]
    assert model.brain.tolist()[:3] == [1.0, 1.0, 1.015625]
    assert model.count.item() == COUNT
    assert model.turned.tolist() == [[1, 4], [2, 5], [3, 6]]


@settings(deadline=None, max_examples=60)
@given(
    shape=st.lists(st.integers(0, 4), max_size=4),
    order=st.randoms(use_true_random=False),
    offset=st.integers(0, 3),
)
def test_any_permuted_view_is_written_in_the_order_that_it_is_read_in(shape, order, offset):
    axes = list(range(len(shape)))
    order.shuffle(axes)
    base = c_strides(shape)
    numel = int(np.prod(shape, dtype=np.int64)) + offset
    flat = np.arange(numel, dtype=np.float32)
    one = segment(
        "p", "float32", (numel,), 0,
        views=[
            view(
                "p",
                [shape[axis] for axis in axes],
                strides=[base[axis] for axis in axes],
                storage_offset=offset,
            )
        ],
    )  # fmt: skip
    (entry,) = list_tensors(
        geometry([one]), params=flat, buffers=np.zeros(0, np.float32), local_buffers={}
    )
    expected = flat[offset:].reshape(shape).transpose(axes).reshape(-1)
    np.testing.assert_array_equal(values_of(entry), expected)
    assert entry.nbytes == expected.size * 4


@settings(deadline=None)
@given(
    st.lists(
        st.floats(-(2.0**127), 2.0**127, width=32, allow_nan=False, allow_infinity=False),
        max_size=20,
    )
)
def test_bfloat16_is_rounded_to_nearest_and_ties_to_even_as_torch_does(values):
    torch = pytest.importorskip("torch")
    flat = np.array(values, np.float32)
    one = segment("p", "bfloat16", (len(values),), 0)
    (entry,) = list_tensors(
        geometry([one]), params=flat, buffers=np.zeros(0, np.float32), local_buffers={}
    )
    expected = torch.from_numpy(flat).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(values_of(entry).astype(np.uint16), expected)


@pytest.mark.slow
def test_a_large_tensor_is_written_in_pieces_with_little_memory(tmp_path):
    numel = 16 * PIECE_ELEMENTS
    params = np.ones(numel, np.float32)
    turned = segment(
        "p", "bfloat16", (4096, numel // 4096), 0,
        views=[
            view("p", (4096, numel // 4096)),
            view("t", (numel // 4096, 4096), strides=(1, numel // 4096)),
        ],
    )  # fmt: skip
    tracemalloc.start()
    try:
        write(tmp_path / "ck", geometry([turned]), params)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < params.nbytes / 2
    assert read_weights(tmp_path / "ck.safetensors")["t"].shape == (numel // 4096, 4096)


@pytest.mark.parametrize(
    "broken",
    [
        segment("p", "float32", (4,), 0, views=[view("p", (5,))]),
        segment("p", "float32", (4,), 0, views=[view("p", (2,), storage_offset=3)]),
        segment("p", "float32", (4,), 0, views=[view("p", (2,), strides=(-1,), storage_offset=1)]),
        segment("p", "float32", (4,), 0, views=[view("p", (2, 2), strides=(1,))]),
        segment("p", "float32", (9,), 0),
    ],
)
def test_a_geometry_that_does_not_fit_its_values_is_refused_by_name(broken):
    with pytest.raises(CheckpointError, match=r"^p "):
        list_tensors(
            geometry([broken]),
            params=np.zeros(4, np.float32),
            buffers=np.zeros(0, np.float32),
            local_buffers={},
        )


@settings(deadline=None)
@given(st.binary(max_size=120))
def test_arbitrary_bytes_are_no_weights_file(tmp_path_factory, body):
    path = tmp_path_factory.getbasetemp() / "junk.safetensors"
    path.write_bytes(body)
    with pytest.raises(CheckpointError):
        read_header_untrusted(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
rows = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "F99"]) | json_values,
        "shape": st.lists(st.integers(-1, 3), max_size=2) | json_values,
        "data_offsets": st.lists(st.integers(-4, 40), min_size=2, max_size=2) | json_values,
    },
)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=3) | st.just("__metadata__"), rows | json_values),
    st.integers(0, 40),
)
def test_a_header_with_anything_in_it_is_read_or_refused(tmp_path_factory, header, values):
    path = tmp_path_factory.getbasetemp() / "odd.safetensors"
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(values))
    try:
        read = read_weights(path)
    except CheckpointError:
        return
    assert sum(value.nbytes for value in read.values()) <= 4 * values


def test_a_header_that_claims_to_be_huge_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes((2**40).to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match="longer than the file"):
        read_header_untrusted(path)


def write_half(path, *, unnamed):
    with writing_whole(path, unnamed=unnamed) as file:
        file.write(b"half")
        raise RuntimeError("stop")


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_file_takes_its_place_only_when_it_is_whole(tmp_path, unnamed):
    path = tmp_path / "a"
    path.write_text("old")
    seen = []

    def look():
        seen.append(path.read_text())

    with writing_whole(path, unnamed=unnamed, before_replacing=look) as file:
        file.write(b"new")
        seen.append(path.read_text())
    assert (seen, path.read_text(), file.nbytes) == (["old", "old"], "new", 3)
    with pytest.raises(RuntimeError, match="stop"):
        write_half(path, unnamed=unnamed)
    assert path.read_text() == "new"
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
