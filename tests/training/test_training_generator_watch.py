"""Samples that use no generator of Python or numpy are not seeded; one that does gets its own."""

import random
from collections import Counter

import numpy as np
import pytest
import torch

from flodl_core.dispatch.seeds import derive_seed
from flodl_core.training.generator_watch import SAMPLES_TO_LEARN
from flodl_core.training.samples import BegunBatch, SampleReader

COUNT = 2 * SAMPLES_TO_LEARN
LATE = COUNT - 3
"""A sample that the reader comes to when it spares seeding."""


class Sometimes:
    """Draws in some samples only."""

    def __init__(self, draw, drawing):
        self.draw = draw
        self.drawing = drawing
        self.reads = Counter()

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        self.reads[index] += 1
        return self.draw() if index in self.drawing else index


DRAWS = {
    "python": random.random,
    "python bits": lambda: random.getrandbits(3),
    "numpy": np.random.rand,
    "numpy normal": np.random.standard_normal,
    "torch": lambda: torch.rand(()).item(),
    "all": lambda: (random.random(), np.random.rand(), torch.rand(()).item()),
}


def expected(draw, sample_id, *, run_seed=3):
    seed = derive_seed(run_seed, "sample", 0, sample_id)
    torch.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)
    return draw()


def read_in_a_turn(reader, ids):
    batch = BegunBatch(0, ids)
    with reader.turn():
        reader.read_on(batch)
    return batch.samples


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("drawing", [{0, LATE}, {LATE}, {LATE, LATE + 1}, {20, COUNT - 1}])
def test_a_sample_draws_under_its_own_seed_whenever_the_first_draw_comes(name, drawing):
    draw = DRAWS[name]
    data = Sometimes(draw, drawing)
    reader = SampleReader(data, list, seed=3, n_samples=COUNT)
    for start in range(0, COUNT, 8):
        random.seed(start)
        ids = range(start, start + 8)
        found = read_in_a_turn(reader, ids)
        assert found == [expected(draw, i) if i in drawing else i for i in ids]


def test_only_the_batch_that_surprised_is_read_twice():
    data = Sometimes(random.random, {LATE, LATE + 1})
    reader = SampleReader(data, list, seed=3, n_samples=COUNT)
    for start in range(0, COUNT, 2):
        reader.read(0, [start, start + 1])
    twice = LATE - LATE % 2
    assert {index: reads for index, reads in data.reads.items() if reads > 1} == {
        twice: 2,
        twice + 1: 2,
    }


def test_a_sample_that_fails_only_by_its_chance_is_read_under_its_seed():
    """Without its seed the sample fails; with it, what it draws is as expected."""
    wanted = expected(random.random, LATE)

    def draw():
        value = random.random()
        if value != wanted:
            raise ValueError(value)
        return value

    reader = SampleReader(Sometimes(draw, {LATE}), list, seed=3, n_samples=COUNT)
    assert reader.read(0, range(COUNT))[LATE] == wanted


def test_a_sample_that_fails_for_good_raises_its_own_error():
    def fail():
        raise KeyError("lost")

    reader = SampleReader(Sometimes(fail, {LATE}), list, seed=3, n_samples=COUNT)
    with pytest.raises(KeyError, match="lost"):
        reader.read(0, range(COUNT))


@pytest.mark.parametrize("name", DRAWS)
def test_a_collate_that_draws_goes_on_where_the_last_sample_ended(name):
    draw = DRAWS[name]
    late = [False]

    def collate(samples):
        return (*samples, draw()) if late[0] else tuple(samples)

    reader = SampleReader(
        Sometimes(lambda: torch.rand(()).item(), {LATE}), collate, seed=3, n_samples=COUNT
    )
    reader.read(0, range(SAMPLES_TO_LEARN))
    late[0] = True
    sampled = expected(lambda: torch.rand(()).item(), LATE)
    assert reader.read(0, [LATE]) == (sampled, draw_after_sample(draw))


def draw_after_sample(draw):
    expected(lambda: torch.rand(()).item(), LATE)
    return draw()


def test_samples_without_chance_are_not_seeded_after_the_first():
    states = []

    class Watched(Sometimes):
        def __getitem__(self, index):
            states.append((random.getstate(), torch.default_generator.get_state().tolist()))
            return super().__getitem__(index)

    reader = SampleReader(Watched(random.random, set()), list, seed=3, n_samples=COUNT)
    reader.read(0, range(SAMPLES_TO_LEARN))
    torch.manual_seed(11)
    mine = torch.default_generator.get_state().tolist()
    states.clear()
    read_in_a_turn(reader, [5])
    read_in_a_turn(reader, [6])
    assert states[0] == states[1]
    assert states[0][1] == mine


def test_a_late_draw_of_torch_has_the_batch_read_again_and_torch_seeded_from_then_on():
    data = Sometimes(DRAWS["torch"], {LATE, LATE + 1})
    reader = SampleReader(data, list, seed=3, n_samples=COUNT)
    reader.read(0, range(SAMPLES_TO_LEARN))
    data.reads.clear()
    torch.manual_seed(11)
    mine = torch.default_generator.get_state()
    found = [*read_in_a_turn(reader, [LATE - 1, LATE]), *read_in_a_turn(reader, [LATE + 1])]
    assert torch.equal(torch.default_generator.get_state(), mine)
    assert found == [LATE - 1, *(expected(DRAWS["torch"], index) for index in (LATE, LATE + 1))]
    assert data.reads == {LATE - 1: 2, LATE: 2, LATE + 1: 1}


def test_samples_that_use_torch_alone_keep_the_other_generators_unseeded():
    everything = set(range(COUNT))
    data = Sometimes(lambda: (torch.rand(()).item(), random.getstate()), everything)
    reader = SampleReader(data, list, seed=3, n_samples=COUNT)
    reader.read(0, range(SAMPLES_TO_LEARN))
    (first, state), (second, other) = (read_in_a_turn(reader, [index])[0] for index in (5, 6))
    assert (first, second) == tuple(expected(DRAWS["torch"], index) for index in (5, 6))
    assert state == other


def test_a_batch_that_is_recalled_is_read_on_later_to_the_same_samples():
    data = Sometimes(DRAWS["torch"], {LATE, LATE + 1, LATE + 2})
    reader = SampleReader(data, list, seed=3, n_samples=COUNT)
    reader.read(0, range(SAMPLES_TO_LEARN))
    batch = BegunBatch(0, range(LATE - 2, LATE + 3))
    turns = 0
    while batch.lacks_samples:
        asked = iter((False, True))
        with reader.turn():
            reader.read_on(batch, is_recalled=lambda asked=asked: next(asked, True))
        turns += 1
    assert batch.samples == [
        LATE - 2,
        LATE - 1,
        *(expected(DRAWS["torch"], index) for index in range(LATE, LATE + 3)),
    ]
    assert turns >= 5
