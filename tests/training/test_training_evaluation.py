"""Evaluating a model: the batches, the generators, and what may go wrong."""

import random

import numpy as np
import torch
from torch import nn

from flodl_core.training.evaluation import Evaluator
from flodl_core.training.job import TrainJob
from flodl_core.training.loader import eval_batches

CPU = torch.device("cpu")


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
