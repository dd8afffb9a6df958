"""`synthetic`: made-up data and a model of any size, to try the machinery itself.

What it is: a packaged job whose parameter count, buffers, samples and extra
milliseconds a step are options, so that unequal ranks and large models can be had
on one box. Extra time is spent waiting, not computing: unequal devices, same CPU.
What it is not: a task that anything can be learned from, beyond a linear map.
Who drives it: `flodl headless synthetic`, benchmarks and tests.
"""

import threading
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional

from flodl_core.errors import JobError
from flodl_core.training.batches import Batch
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext

FEATURES = 16
_SAMPLE_SEED = 20_240_131
_MAX_PARAMS = 4_000_000_000
_MAX_STEP_MS = 600_000.0

Number = int | float


class SyntheticModel(nn.Module):
    """A linear map that learns, beside weights of any number that take part with a tiny effect."""

    def __init__(self, *, params: int, buffers: int) -> None:
        """Make the model.

        Args:
            params: parameters in all, at least those of the linear map.
            buffers: values of an f32 buffer that each batch moves; 0 for none.
        """
        super().__init__()
        self.linear = nn.Linear(FEATURES, 1)
        self.ballast = nn.Parameter(torch.empty(max(0, params - FEATURES - 1)).normal_(std=0.01))
        self.batches_seen: torch.Tensor
        self.register_buffer("batches_seen", torch.zeros((), dtype=torch.int64))
        self.drift: torch.Tensor
        if buffers:
            self.register_buffer("drift", torch.zeros(buffers))
        self._has_drift = buffers > 0

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return one value a sample."""
        if self.training:
            self.batches_seen += 1
            if self._has_drift:
                self.drift.mul_(0.9).add_(features.detach().mean(), alpha=0.1)
        value: torch.Tensor = self.linear(features).squeeze(-1)
        return value + self.ballast.mean() if self.ballast.numel() else value


class SyntheticSamples:
    """Samples that follow from their index alone: features, and a fixed linear map of them."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        chance = torch.Generator().manual_seed(_SAMPLE_SEED)
        self._truth = torch.randn(FEATURES, generator=chance)

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not 0 <= index < self._samples:
            raise IndexError(index)
        chance = torch.Generator().manual_seed(_SAMPLE_SEED + index + 1)
        features = torch.randn(FEATURES, generator=chance)
        return features, features @ self._truth


def job(
    *,
    params: int = 10_000,
    samples: int = 2_048,
    buffers: int = 64,
    step_ms: Number | tuple[Number, ...] = 0,
    batch_size: int = 16,
    epochs: int = 2,
) -> TrainJob:
    """Return the job.

    Args:
        params: parameters of the model, at least 17.
        samples: of the data, at least 1.
        buffers: values of its f32 buffer; 0 for none.
        step_ms: extra milliseconds a step; one for all ranks, or one a rank, the
            last of which holds for all further ranks.
        batch_size: samples of one batch of one rank.
        epochs: passes over the samples.

    Raises:
        JobError: an option cannot be used.
    """
    _check_count("params", params, FEATURES + 1, _MAX_PARAMS)
    _check_count("samples", samples, 1, 2**62)
    _check_count("buffers", buffers, 0, _MAX_PARAMS)
    waits_ms = wait_times_ms(step_ms)

    def step(ctx: StepContext, batch: Batch) -> torch.Tensor:
        ctx.optimizer.zero_grad(set_to_none=True)
        loss = ctx.accumulate(batch, lambda piece: _loss_of(ctx.model, piece))
        ctx.optimizer_step()
        wait_s = wait_of(waits_ms, ctx.rank) / 1e3
        if wait_s > 0:
            threading.Event().wait(wait_s)
        return loss

    return TrainJob(
        model=lambda: SyntheticModel(params=params, buffers=buffers),
        optimizer=lambda module: torch.optim.SGD(module.parameters(), lr=0.05),
        dataset=lambda: SyntheticSamples(samples),
        step=step,
        batch_size=batch_size,
        epochs=epochs,
        eval_dataset=lambda: SyntheticSamples(min(samples, 256)),
        metric=mean_squared_error,
        metric_name="mse",
        dataset_version=f"synthetic {samples}",
    )


def _loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    features, values = batch
    return functional.mse_loss(model(features), values)


def mean_squared_error(model: nn.Module, batches: Iterable[Batch], device: torch.device) -> float:
    """Return the mean squared error over all samples of the batches."""
    total, seen = 0.0, 0
    for features, values in batches:
        guessed = model(features.to(device))
        total += float(functional.mse_loss(guessed, values.to(device), reduction="sum"))
        seen += len(values)
    return total / max(1, seen)


def wait_times_ms(step_ms: Number | tuple[Number, ...]) -> tuple[float, ...]:
    """Return the extra milliseconds a step, one for each named rank.

    Raises:
        JobError: one is no number of milliseconds from 0 to ten minutes.
    """
    given = step_ms if isinstance(step_ms, tuple) else (step_ms,)
    for one in given:
        is_number = isinstance(one, int | float) and not isinstance(one, bool)
        if not is_number or not 0 <= one <= _MAX_STEP_MS:
            raise JobError(
                f"synthetic: step_ms holds {one!r}",
                fix=f"give milliseconds from 0 to {_MAX_STEP_MS:.0f}, such as 5 or 5,5,20",
            )
    if not given:
        raise JobError("synthetic: step_ms is empty", fix="give one number, or one a rank")
    return tuple(float(one) for one in given)


def wait_of(waits_ms: tuple[float, ...], rank: int) -> float:
    """Return the milliseconds of a rank; the last one named holds for all further ranks."""
    return waits_ms[min(rank, len(waits_ms) - 1)]


def _check_count(name: str, value: int, smallest: int, largest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not smallest <= value <= largest:
        raise JobError(
            f"synthetic: {name} is {value!r}", fix=f"give a whole number from {smallest} up"
        )
