"""Samples by their place in a pass, seeded one by one."""

import random

import numpy as np
import pytest
import torch

from flodl_core.dispatch.permutation import Permutation
from flodl_core.errors import JobError
from flodl_core.training.samples import BatchPlace, PassOrder, SampleReader, reading, seed_step


class Noisy:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return index, torch.rand(()), np.random.rand(), random.random()


class Run:
    """Reads batches by their place, as every reader does."""

    def __init__(self, *, collate=None, seed=3):
        self.reader = SampleReader(Noisy(), collate, seed=seed, n_samples=20)
        self.order = PassOrder(20, seed)

    def fetch(self, pass_index, offset, size):
        ids = self.order.ids(BatchPlace(pass_index, offset, size))
        with reading():
            return self.reader.read(pass_index, ids)


def test_a_batch_holds_the_samples_of_its_positions():
    run = Run()
    for pass_index in (1, 0, 1):
        ids = run.fetch(pass_index, 4, 5)[0]
        assert ids.tolist() == Permutation(20, 3, pass_index).ids(4, 5).tolist()


def test_chance_of_a_sample_depends_on_run_pass_and_sample_alone():
    def noise(run, pass_index):
        whole = {}
        for offset, size in ((0, 7), (7, 13)):
            columns = run.fetch(pass_index, offset, size)
            for sample, *values in zip(*(column.tolist() for column in columns), strict=True):
                whole[sample] = values
        return whole

    first = noise(Run(), 0)
    single = Run()
    for position in range(19, -1, -1):
        ids, *values = (column.tolist() for column in single.fetch(0, position, 1))
        assert [value[0] for value in values] == first[ids[0]]
    assert noise(Run(), 1)[3] != first[3]
    assert noise(Run(seed=4), 0)[3] != first[3]
    assert len({tuple(values) for values in first.values()}) == 20


def test_reading_leaves_torchs_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Run().fetch(0, 0, 4)
    assert torch.equal(torch.rand(3), expected)


def test_a_failing_read_leaves_the_generator_alone_too():
    torch.manual_seed(5)
    before = torch.get_rng_state()

    def torn(samples):
        raise IndexError(torch.rand(1))

    with pytest.raises(IndexError):
        Run(collate=torn).fetch(0, 0, 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_steps_own_python_and_numpy_draws_depend_on_its_place_alone():
    def draws(*place):
        random.seed()
        np.random.seed()
        seed_step(3, BatchPlace(*place))
        return random.random(), np.random.rand()

    assert draws(0, 4, 4) == draws(0, 4, 4)
    assert draws(0, 4, 4) != draws(0, 8, 4)
    assert draws(0, 4, 4) != draws(1, 4, 4)


def test_a_collate_of_the_jobs_own_is_used():
    made = Run(collate=lambda samples: [s[0] for s in samples]).fetch(0, 0, 2)
    assert made == [int(i) for i in Permutation(20, 3, 0).ids(0, 2)]


def test_another_length_than_the_runs_is_refused():
    with pytest.raises(JobError, match="20 samples here, and the run agreed on 21"):
        SampleReader(Noisy(), None, seed=3, n_samples=21)


def test_a_place_says_where_it_is():
    assert str(BatchPlace(2, 64, 32)) == "positions 64…95 of pass 2"
