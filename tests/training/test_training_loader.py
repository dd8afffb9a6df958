"""Samples by their place in a pass, seeded one by one."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from flodl_core.dispatch.permutation import Permutation
from flodl_core.errors import JobError
from flodl_core.training.evaluation import Evaluator
from flodl_core.training.job import TrainJob
from flodl_core.training.loader import SampleLoader, eval_batches

CPU = torch.device("cpu")


class Noisy:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return index, torch.rand(()), np.random.rand(), random.random()


def loader(dataset=None, *, collate=None, seed=3, n_samples=20):
    return SampleLoader(dataset or Noisy(), collate, seed=seed, n_samples=n_samples)


def test_a_batch_holds_the_samples_of_its_positions():
    ids = loader().fetch(1, 4, 5)[0]
    assert ids.tolist() == Permutation(20, 3, 1).ids(4, 5).tolist()


def test_chance_of_a_sample_depends_on_run_pass_and_sample_alone():
    def noise(run, pass_index):
        whole = {}
        for offset, size in ((0, 7), (7, 13)):
            columns = run.fetch(pass_index, offset, size)
            for sample, *values in zip(*(column.tolist() for column in columns), strict=True):
                whole[sample] = values
        return whole

    first = noise(loader(), 0)
    single = loader()
    for position in range(19, -1, -1):
        ids, *values = (column.tolist() for column in single.fetch(0, position, 1))
        assert [value[0] for value in values] == first[ids[0]]
    assert noise(loader(), 1)[3] != first[3]
    assert noise(loader(seed=4), 0)[3] != first[3]
    assert len({tuple(values) for values in first.values()}) == 20


def test_reading_leaves_the_generator_of_the_step_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    loader().fetch(0, 0, 4)
    assert torch.equal(torch.rand(3), expected)


def test_the_steps_own_python_and_numpy_draws_repeat():
    draws = []
    for _ in range(2):
        random.seed()
        loader().fetch(0, 4, 4)
        draws.append((random.random(), np.random.rand()))
    assert draws[0] == draws[1]


def test_a_collate_of_the_jobs_own_is_used():
    assert loader(collate=lambda samples: [s[0] for s in samples]).fetch(0, 0, 2) == [
        int(i) for i in Permutation(20, 3, 0).ids(0, 2)
    ]


def test_another_length_than_the_runs_is_refused():
    with pytest.raises(JobError, match="20 samples here, and the run agreed on 21"):
        loader(n_samples=21)


def test_eval_batches_cover_the_data_in_order():
    data = [torch.tensor(float(i)) for i in range(5)]
    found = [batch.tolist() for batch in eval_batches(data, None, batch_size=2, device=CPU)]
    assert found == [[0, 1], [2, 3], [4]]


def evaluator(metric, **changes):
    job = TrainJob(
        model=lambda: nn.Linear(1, 1),
        optimizer=lambda model: None,
        dataset=lambda: [1],
        step=lambda ctx, batch: 0.0,
        eval_dataset=lambda: [torch.ones(1)] * 3,
        metric=metric,
        **changes,
    )
    return Evaluator(job, batch_size=2, device=CPU, seed=1)


def test_an_evaluation_restores_modes_and_generators():
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    model.train()
    model[1].eval()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()

    def metric(module, batches, device):
        assert not any(part.training for part in module.modules())
        random.random()
        return sum(float(torch.rand(()) + np.random.rand()) for _ in batches)

    first = evaluator(metric).evaluate(model)
    assert [part.training for part in model.modules()] == [True, True, False]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]
    assert evaluator(metric).evaluate(model).metric == first.metric
    assert first.elapsed_ms > 0


def test_a_metric_that_is_not_finite_is_an_error_with_its_value():
    found = evaluator(lambda *_: float("nan")).evaluate(nn.Linear(1, 1))
    assert (found.metric, found.error) == (None, "the metric is nan")


def test_a_failing_report_keeps_the_metric():
    def report(model):
        raise ValueError("no text")

    found = evaluator(lambda *_: 2.0, report=report).evaluate(nn.Linear(1, 1))
    assert found.metric == 2.0
    assert "no text" in found.error
