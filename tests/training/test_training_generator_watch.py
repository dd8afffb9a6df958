"""Samples that use no generator of Python or numpy are not seeded; one that does gets its own."""

import random
from collections import Counter

import numpy as np
import pytest
import torch

from flodl_core.dispatch.seeds import derive_seed
from flodl_core.training.generator_watch import SAMPLES_TO_LEARN
from flodl_core.training.samples import SampleReader

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


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("drawing", [{0, LATE}, {LATE}, {LATE, LATE + 1}, {20, COUNT - 1}])
def test_a_sample_draws_under_its_own_seed_whenever_the_first_draw_comes(name, drawing):
    draw = DRAWS[name]
    data = Sometimes(draw, drawing)
    reader = SampleReader(data, list, seed=3, n_samples=COUNT)
    for start in range(0, COUNT, 8):
        random.seed(start)
        ids = range(start, start + 8)
        with reader.turn():
            found = [reader.sample(0, index) for index in ids]
        assert found == [expected(draw, i) if i in drawing else i for i in ids]


def test_only_the_sample_that_surprised_is_read_twice():
    data = Sometimes(random.random, {LATE, LATE + 1})
    reader = SampleReader(data, list, seed=3, n_samples=COUNT)
    for index in range(COUNT):
        reader.read(0, [index])
    assert {index: reads for index, reads in data.reads.items() if reads > 1} == {LATE: 2}


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
    reader = SampleReader(Sometimes(random.random, set()), list, seed=3, n_samples=COUNT)
    reader.read(0, range(SAMPLES_TO_LEARN))
    with reader.turn():
        reader.sample(0, 5)
        first = random.random()
    with reader.turn():
        reader.sample(0, 6)
        assert random.random() == first
