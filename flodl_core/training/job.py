"""The job: what a user hands over to be trained.

A TrainJob says how to build the model, the optimizer and the data, and what one
batch does. It is not told where it runs or with whom: every rank builds its own
copy from the same functions. The training worker drives it, one `step` a batch,
through a StepContext; `load_job` finds it by name.

    def step(ctx: StepContext, batch: Batch) -> torch.Tensor:
        inputs, targets = batch
        ctx.optimizer.zero_grad()
        with ctx.autocast():
            loss = torch.nn.functional.cross_entropy(ctx.model(inputs), targets)
        ctx.backward(loss)
        ctx.optimizer_step()
        return loss
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

import torch
from torch import nn

from flodl_core.errors import JobError
from flodl_core.training.batches import Batch
from flodl_core.training.callbacks import ARGUMENTS, check_callable
from flodl_core.training.step_context import StepContext

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]

_REQUIRED = frozenset({"model", "optimizer", "dataset", "step"})
BATCH_SIZE_MAX = 1 << 20
WORKERS_MAX = 64


class MapDataset(Protocol):
    """A map-style dataset: a length, and an item for each index 0 … length - 1."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...  # noqa: ANN401 - a sample is what the job says


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """What is trained, and how.

    Raises:
        JobError: a field cannot be used; it is named.
    """

    model: Callable[[], nn.Module]
    """Builds the model, on the CPU; called once a rank under the run's seed."""
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    """Builds the optimizer for the model, which is already on its device."""
    dataset: Callable[[], MapDataset]
    """Builds the training data; the same length and order on every host."""
    step: Callable[[StepContext, Batch], torch.Tensor | float]
    """Forward, backward and optimizer step of one batch; returns the mean loss of its samples."""
    batch_size: int = 32
    """Samples of one batch of one rank; a run may set another."""
    epochs: int = 1
    """Passes over the data; a run may set another."""
    collate: Callable[[list[Any]], Batch] | None = None
    """Makes a batch of a list of samples; torch's default_collate if None."""
    workers: int = 0
    """Processes that read samples for each rank; a host may set another number."""
    eval_dataset: Callable[[], MapDataset] | None = None
    """Builds the data that `metric` sees."""
    metric: Callable[[nn.Module, Iterable[Batch], torch.device], float] | None = None
    """Scores the model in eval mode and without gradients over the batches of eval_dataset."""
    metric_name: str = "metric"
    """What `metric` is called on screens and in files, such as accuracy."""
    scheduler: Callable[[int], float] | None = None
    """Learning rate factor of a global step (batches that the cohort has committed)."""
    precision: Precision = "float32"
    """Of `ctx.autocast()`; float16 also turns gradient scaling on."""
    dataset_version: str | None = None
    """Part of the dataset's signature; change it when the data change."""
    report: Callable[[nn.Module], str] | None = None
    """What the model has to show after an evaluation, such as generated text."""
    on_device: Callable[[nn.Module, torch.device], nn.Module] | None = None
    """Moves the model to its device; `model.to(device)` if None."""
    memory_format: torch.memory_format | None = None
    """Such as torch.channels_last; applied on the device, before the layout is made."""
    compile: Callable[[nn.Module], nn.Module] | None = None
    """Wraps the finished model, such as torch.compile; ctx.model is what it returns."""

    def __post_init__(self) -> None:
        """Refuse what could only fail later."""
        for name in ARGUMENTS:
            if name in _REQUIRED or getattr(self, name) is not None:
                check_callable(name, getattr(self, name))
        _require_count("batch_size", self.batch_size, 1, BATCH_SIZE_MAX)
        _require_count("epochs", self.epochs, 1, 1 << 31)
        _require_count("workers", self.workers, 0, WORKERS_MAX)
        if not isinstance(self.metric_name, str) or not self.metric_name:
            raise JobError(
                f"TrainJob.metric_name is {self.metric_name!r}", fix="give a word, such as accuracy"
            )
        if self.precision not in get_args(Precision):
            raise JobError(
                f"TrainJob.precision is {self.precision!r}",
                fix=f"give one of {', '.join(get_args(Precision))}",
            )
        if (self.metric is None) != (self.eval_dataset is None):
            present, absent = (
                ("metric", "eval_dataset")
                if self.metric is not None
                else ("eval_dataset", "metric")
            )
            raise JobError(
                f"TrainJob has {present} but no {absent}",
                fix="give both, or neither for a run without evaluation",
            )

    @property
    def has_eval(self) -> bool:
        """Whether the run evaluates the consensus after each epoch."""
        return self.metric is not None


def _require_count(name: str, value: int, least: int, largest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= largest:
        raise JobError(
            f"TrainJob.{name} is {value!r}", fix=f"give a whole number from {least} to {largest}"
        )


__all__ = ["Batch", "MapDataset", "Precision", "StepContext", "TrainJob"]
