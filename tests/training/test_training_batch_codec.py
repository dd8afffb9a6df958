"""A batch that another process read is the batch, to the last bit."""

import enum
import re
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
import torch
from chancy_job import Item
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.errors import JobError
from flodl_core.training.batch_codec import MAX_HEAD_BYTES, EncodedBatch, decode_batch

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


def carry(batch):
    """Encode, copy the bytes into memory of their own, decode."""
    encoded = EncodedBatch(batch)
    copies = [
        torch.frombuffer(bytearray(b) or bytearray(1), dtype=torch.uint8)[: len(b)]
        for b in encoded.buffers
    ]
    return decode_batch(encoded.head, [copy.clone() for copy in copies])


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def same(first, second):
    assert type(first) is type(second)
    if isinstance(first, torch.Tensor):
        assert (first.dtype, first.shape, first.stride()) == (
            second.dtype,
            second.shape,
            second.stride(),
        )
        if first.numel():
            assert bits(first.reshape(-1)) == bits(second.reshape(-1))
    elif isinstance(first, np.ndarray):
        assert (first.dtype, first.shape) == (second.dtype, second.shape)
        assert first.flags.f_contiguous == second.flags.f_contiguous
        assert first.tobytes() == second.tobytes()
    elif isinstance(first, dict):
        assert list(first) == list(second)
        for key in first:
            same(first[key], second[key])
    elif isinstance(first, tuple | list):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            same(one, other)
    elif isinstance(first, float):
        assert np.float64(first).tobytes() == np.float64(second).tobytes()
    else:
        assert first == second


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    values = torch.arange(int(np.prod(shape)) if shape else 1).reshape(shape).to(dtype)
    order = draw(st.permutations(range(len(shape))))
    return values.permute(*order) if order else values


LEAVES = st.one_of(
    tensors(),
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.complex_numbers(allow_nan=False),
    st.sampled_from([np.float32(1.5), np.int64(-3), np.str_("é"), np.datetime64("2024-01-31")]),
    st.sampled_from(
        [
            np.arange(6.0).reshape(2, 3),
            np.asfortranarray(np.arange(6).reshape(2, 3)),
            np.array(["a", "bc"]),
            np.zeros((0, 2)),
        ]
    ),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers()), inner, max_size=4),
        st.builds(Item, inner, inner, inner, inner),
        st.lists(st.tuples(st.text(max_size=3), inner), max_size=3).map(OrderedDict),
    ),
    max_leaves=12,
)


@given(TREES)
def test_any_tree_of_tensors_and_plain_values_comes_out_as_it_went_in(tree):
    same(tree, carry(tree))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(2, 3, 4).transpose(0, 2),
        torch.arange(16.0).reshape(1, 2, 2, 4).to(memory_format=torch.channels_last),
        torch.arange(3.0).expand(4, 3),
        torch.arange(20.0)[3:15:2],
        torch.arange(20.0).reshape(4, 5)[:, 1:3],
        torch.tensor(2.5),
        torch.zeros(0, 3),
        torch.tensor([1 + 2j, 3 - 4j]).conj(),
        torch.tensor([float("nan"), -0.0, float("inf")]),
    ],
    ids=[
        "turned",
        "channels_last",
        "expanded",
        "skipping",
        "cut",
        "scalar",
        "empty",
        "conj",
        "odd",
    ],
)
def test_strides_and_every_bit_stay(tensor):
    same(tensor.resolve_conj(), carry(tensor))


def test_a_slice_carries_no_more_than_its_own_span():
    assert [len(b) for b in EncodedBatch(torch.arange(1000.0)[10:20]).buffers] == [40]


def test_one_tensor_under_two_names_stays_one():
    one = torch.arange(3.0)
    first, second = carry((one, one))
    assert first is second
    assert len(EncodedBatch([one, one]).buffers) == 1


def test_a_leaf_that_wants_a_gradient_still_does():
    assert carry(torch.ones(2, requires_grad=True)).requires_grad


@pytest.mark.parametrize(
    "value",
    [np.str_(""), np.bytes_(b""), np.bytes_(b"a\0"), "cat\udc80.png"],
    ids=ascii,
)
def test_texts_of_every_kind_come_out_as_they_went_in(value):
    found = carry({"name": value})["name"]
    assert type(found) is type(value)
    assert found == value


def test_a_dictionary_with_a_default_keeps_it():
    found = carry(defaultdict(list, x=torch.ones(1)))
    assert found.default_factory is list
    assert found["y"] == []


def test_more_texts_than_a_rank_takes_are_refused_with_the_way_out():
    with pytest.raises(JobError, match=f"hands {MAX_HEAD_BYTES} bytes") as refusal:
        EncodedBatch([b"x" * (MAX_HEAD_BYTES + 1)])
    assert "uint8 tensors" in refusal.value.fix


class Colour(enum.IntEnum):
    RED = 1


class Labelled(torch.Tensor):
    pass


def local_tuple():
    return namedtuple("Hidden", "x")(torch.ones(1))


def deep():
    tree = 1
    for _ in range(40):
        tree = [tree]
    return tree


@pytest.mark.parametrize(
    ("batch", "named"),
    [
        ([object()], "builtins.object"),
        ({"a": {1, 2}}, "builtins.set"),
        (Colour.RED, "Colour"),
        (lambda: 1, "function"),
        (torch.ones(2).as_subclass(Labelled), "Labelled"),
        (torch.ones(2, 2).to_sparse(), "sparse"),
        (torch.ones(2, device="meta"), "meta"),
        (torch.ones(2, requires_grad=True) * 2, "gradient"),
        (np.array([object()]), "numpy array of object"),
        (np.zeros(2, dtype=[("a", "f4")]), "numpy array of"),
        (np.ma.masked_array([1.0]), "MaskedArray"),
        (local_tuple(), "Hidden, which another process cannot find"),
        (deep(), "nests deeper"),
        (defaultdict(lambda: 0), "<lambda>, which another process cannot find"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name_with_the_way_out(batch, named):
    with pytest.raises(JobError, match=re.escape(named)) as refusal:
        EncodedBatch(batch)
    assert "--loader-workers 0" in refusal.value.fix
