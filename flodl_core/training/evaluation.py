"""Evaluating the consensus: the job's metric over its eval data, then its report.

The model is in eval mode and without gradients while it runs; afterwards every
module's mode and every random generator is as it was, so that a run with
evaluation trains the same as one without.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from flodl_core.dispatch.actions import RunEval
from flodl_core.errors import JobError
from flodl_core.ids import Rank
from flodl_core.messages.timing import EvalResult
from flodl_core.net import clock
from flodl_core.training.callbacks import METRIC_FIX, NamedSamples, described, number_of
from flodl_core.training.job import MapDataset, TrainJob
from flodl_core.training.load import describe_error
from flodl_core.training.loader import eval_batches
from flodl_core.training.signatures import seeded
from flodl_core.units import Milliseconds

REPORT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What an evaluation came to."""

    metric: float | None
    """Finite, or absent with an error."""
    report: str | None
    error: str | None
    elapsed_ms: Milliseconds

    def as_result(self, rank: Rank, action: RunEval, metric_name: str) -> EvalResult:
        """Return it as the answer to the action that asked for it."""
        return EvalResult(
            rank=rank,
            schedule_id=action.schedule_id,
            epoch=action.epoch,
            metric=self.metric,
            metric_name=metric_name,
            elapsed_ms=self.elapsed_ms,
            error=self.error,
            report=self.report,
        )


class Evaluator:
    """Evaluates one job on one device; the eval data are built at the first call."""

    def __init__(self, job: TrainJob, *, batch_size: int, device: torch.device, seed: int) -> None:
        self._job = job
        self._batch_size = batch_size
        self._device = device
        self._seed = seed
        self._dataset: MapDataset | None = None

    def evaluate(self, model: nn.Module) -> Evaluation:
        """Score the model as it is now; an error of the job becomes part of the answer."""
        started = clock.now()
        metric, report, error = None, None, None
        try:
            with _evaluating(model, self._device, self._seed):
                metric = self._score(model)
                report = self._report(model)
            if not math.isfinite(metric):
                metric, error = None, f"the metric is {metric}"
        except BaseException as failure:
            error = describe_error(failure)
        return Evaluation(
            metric=metric, report=report, error=error, elapsed_ms=(clock.now() - started) * 1e3
        )

    def _score(self, model: nn.Module) -> float:
        job = self._job
        if job.metric is None or job.eval_dataset is None:
            raise JobError("the job has no metric", fix="give metric and eval_dataset")
        if self._dataset is None:
            self._dataset = NamedSamples(job.eval_dataset())
        batches = eval_batches(
            self._dataset, job.collate, batch_size=self._batch_size, device=self._device
        )
        return number_of("metric", job.metric(model, batches, self._device), fix=METRIC_FIX)

    def _report(self, model: nn.Module) -> str | None:
        if self._job.report is None:
            return None
        text = self._job.report(model)
        if not isinstance(text, str):
            raise JobError(f"report returned {described(text)}", fix="return text, a str")
        return text.encode(errors="replace")[:REPORT_BYTES].decode(errors="ignore")


@contextmanager
def _evaluating(model: nn.Module, device: torch.device, seed: int) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    devices = [device] if device.type == "cuda" else []
    try:
        with seeded(seed), torch.random.fork_rng(devices), torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
