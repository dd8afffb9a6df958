"""Evaluating a model: the batches, the generators, and what may go wrong."""

import random

import numpy as np
import pytest
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


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, "metric returned None"),
        ("0.5", "metric returned the text '0.5'"),
        (torch.ones(2), "metric returned a tensor of shape (2,) and type torch.float32"),
    ],
)
def test_a_metric_that_returns_no_number_is_told_what_to_return(answer, error):
    found = evaluator(lambda *_: answer).evaluate(nn.Linear(1, 1))
    assert found.metric is None
    assert found.error is not None
    assert found.error.startswith(error)
    assert "return one number" in found.error


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, BaseException])
def test_a_metric_or_a_report_that_leaves_is_a_failed_evaluation(kind):
    def leave(*_):
        raise kind("gone")

    model = nn.Sequential(nn.Linear(1, 1)).train()
    found = evaluator(leave).evaluate(model)
    assert (found.metric, found.error is not None) == (None, True)
    assert f"{kind.__name__}: gone" in found.error
    assert all(part.training for part in model.modules())
    found = evaluator(lambda *_: 1.0, report=leave).evaluate(model)
    assert (found.metric, found.report) == (1.0, None)
    assert f"{kind.__name__}: gone" in found.error


def test_a_report_that_is_no_text_is_an_error_and_odd_text_is_not():
    found = evaluator(lambda *_: 1.0, report=lambda model: 3).evaluate(nn.Linear(1, 1))
    assert (found.metric, found.report) == (1.0, None)
    assert "report returned an int" in found.error
    found = evaluator(lambda *_: 1.0, report=lambda model: "a\ud800b").evaluate(nn.Linear(1, 1))
    assert (found.report, found.error) == ("a?b", None)


def test_a_sample_that_cannot_be_read_for_an_evaluation_is_named():
    class Missing:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            if index == 2:
                raise KeyError("label")
            return torch.ones(1)

    job = {"eval_dataset": Missing}
    made = TrainJob(
        model=lambda: nn.Linear(1, 1),
        optimizer=lambda model: None,
        dataset=lambda: [1],
        step=lambda ctx, batch: 0.0,
        metric=lambda model, batches, device: float(len(list(batches))),
        **job,
    )
    found = Evaluator(made, batch_size=2, device=CPU, seed=1).evaluate(nn.Linear(1, 1))
    assert "KeyError: 'label'" in found.error
    assert "reading sample 2 of Missing" in found.error
