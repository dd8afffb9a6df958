"""A small job that learns from noise, one rank of which may learn far too fast."""

import threading

import torch
from torch import nn

from flodl_core.training.batches import Batch
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext

LEARNING_RATE = 0.05
FEATURES = 16
BATCH = 8


class Noisy:
    """A sum of sines with noise, from the index alone."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        chance = torch.Generator().manual_seed(index % 4096)
        features = torch.randn(FEATURES, generator=chance)
        return features, features.sin().sum() + 0.5 * torch.randn((), generator=chance)


def job(
    *, factor: float = 1.0, samples: int = 200_000, epochs: int = 1, eval_s: float = -1.0
) -> TrainJob:
    """Return the job.

    Args:
        factor: of the learning rate, in rank 1 alone.
        samples: of the data.
        epochs: passes.
        eval_s: what an evaluation takes; below 0 there is none.
    """

    def step(ctx: StepContext, batch: Batch) -> float:
        for group in ctx.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (factor if ctx.rank == 1 else 1.0)
        features, truth = batch
        ctx.optimizer.zero_grad()
        loss = nn.functional.smooth_l1_loss(ctx.model(features).squeeze(-1), truth)
        ctx.backward(loss)
        ctx.optimizer_step()
        return loss.item()

    def metric(model: nn.Module, batches: object, device: torch.device) -> float:
        threading.Event().wait(eval_s)
        return float(sum(parameter.detach().abs().sum() for parameter in model.parameters()))

    return TrainJob(
        model=lambda: nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1)),
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        dataset=lambda: Noisy(samples),
        step=step,
        batch_size=BATCH,
        epochs=epochs,
        eval_dataset=(lambda: Noisy(BATCH)) if eval_s >= 0 else None,
        metric=metric if eval_s >= 0 else None,
        metric_name="size",
    )
