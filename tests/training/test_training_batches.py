"""Batches of every kind of container: moved whole, cut by samples, or refused by name."""

import collections
import re
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from flodl_core.errors import JobError
from flodl_core.training.batches import move_batch
from flodl_core.training.micro_batches import cut_batch

META = torch.device("meta")
"""A device that is no CPU, on every machine."""


class Pair(NamedTuple):
    inputs: object
    names: object


class Twice(collections.namedtuple("Twice", "first second")):
    """A record that is made of one argument."""

    def __new__(cls, value):
        return super().__new__(cls, value, value)


class Graph:
    """Moves itself."""

    def __init__(self, device="cpu"):
        self.device = device

    def to(self, device):
        return Graph(device)


class Stubborn(Graph):
    def to(self, device):
        raise RuntimeError("not today")


class Once(collections.UserDict):
    def __copy__(self):
        raise TypeError("there is one of me")


class Fixed(list):
    def __init__(self):
        super().__init__([torch.ones(1)])


def pieces_of(batch, size=2):
    return [piece for piece, _ in cut_batch(batch, size)]


def test_a_packed_sequence_is_moved_and_its_sizes_stay_on_the_cpu():
    packed = pack_sequence([torch.ones(3, 2), torch.ones(2, 2)])
    moved = move_batch([packed], META)[0]
    assert moved.data.device == META
    assert moved.batch_sizes.device.type == "cpu"


def test_mappings_of_every_kind_keep_their_class_and_what_else_they_hold():
    default = collections.defaultdict(list, x=torch.ones(2))
    user = collections.UserDict(x=torch.ones(2))
    user.note = "kept"
    moved = move_batch([default, user, collections.OrderedDict(x=torch.ones(2))], META)
    assert [type(one).__name__ for one in moved] == ["defaultdict", "UserDict", "OrderedDict"]
    assert all(one["x"].device == META for one in moved)
    assert moved[0].default_factory is list
    assert moved[1].note == "kept"
    assert user["x"].device.type == "cpu", "the batch itself is not changed"


def test_records_are_made_again_whatever_their_class_asks_for():
    moved = move_batch(Twice(torch.ones(1)), META)
    assert type(moved) is Twice
    assert moved.second.device == META


def test_what_knows_how_to_move_itself_is_asked_to_and_left_alone_on_a_cpu():
    graph = Graph()
    assert move_batch({"graph": graph}, META)["graph"].device == META
    assert move_batch({"graph": graph}, torch.device("cpu"))["graph"] is graph
    assert move_batch(["a", 1, None, b"x"], META) == ["a", 1, None, b"x"]


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (Stubborn(), "a Stubborn, which cannot be moved to meta (RuntimeError: not today)"),
        (Once(x=torch.ones(1)), "a Once, which cannot be copied and filled (TypeError: there"),
        (Fixed(), "a Fixed, which cannot be made of its items"),
    ],
    ids=["leaf", "mapping", "list"],
)
def test_what_cannot_be_moved_is_refused_by_its_class(batch, said):
    with pytest.raises(JobError, match=re.escape(f"a batch holds {said}")) as caught:
        move_batch((torch.ones(1), batch), META)
    assert caught.value.fix


def test_arrays_and_lists_of_one_thing_a_sample_are_cut_with_the_tensors():
    batch = (torch.arange(4), np.arange(4) * 2, ["a", "b", "c", "d"], (1, 2, 3, 4))
    first, second = pieces_of(batch)
    assert [part if isinstance(part, list | tuple) else part.tolist() for part in second] == [
        [2, 3],
        [4, 6],
        ["c", "d"],
        (3, 4),
    ]
    assert first[2] == ["a", "b"]


def test_a_list_of_one_list_a_sample_and_one_of_a_list_a_field_are_told_apart():
    words = [["the", "cat"], ["a"], [], ["so", "it", "goes"]]
    fields = [("a", "b", "c", "d"), (1, 2, 3, 4)]
    records = [{"id": number} for number in range(4)]
    batch = Pair(torch.arange(4), {"words": words, "fields": fields, "records": records})
    names = pieces_of(batch)[1].names
    assert names["words"] == [[], ["so", "it", "goes"]]
    assert names["fields"] == [("c", "d"), (3, 4)]
    assert names["records"] == [{"id": 2}, {"id": 3}]


def test_arrays_alone_tell_how_many_samples_there_are():
    assert [piece["x"].tolist() for piece in pieces_of({"x": np.arange(3)})] == [[0, 1], [2]]


def test_what_is_of_the_whole_batch_goes_with_every_piece():
    batch = {"x": torch.arange(3), "name": "train", "scale": 0.5, "no": None, "step": np.int64(3)}
    assert [piece["name"] for piece in pieces_of(batch)] == ["train", "train"]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (["a", "b", "c"], "a list of 3 str"),
        ((224, 224.0), "a tuple of 2 float and int"),
        (np.arange(3), "a numpy array of shape (3,)"),
        (np.array(3), "a numpy array of shape ()"),
        (torch.arange(8).view(2, 4), "a tensor of shape (2, 4)"),
        (torch.eye(4).to_sparse(), "a nested or sparse tensor"),
        (pack_sequence([torch.ones(2, 1)]), "a PackedSequence"),
        (Graph(), "a Graph"),
        ([tuple("abcd")] * 4, "a list of 4 tuple as long as it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_tell_its_samples_is_refused_by_name(part, said):
    said = f"a batch of 4 samples holds {said}"
    with pytest.raises(JobError, match=re.escape(said)) as caught:
        pieces_of((torch.arange(4), part))
    assert "micro_batch" in caught.value.fix
