"""A small job whose rank 1 holds the interpreter lock for long, once."""

import torch
from chaos_holding import hold_interpreter
from torch import nn

from flodl_core.training.batches import Batch
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext


class Points:
    """Points of a line."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.tensor([index / self._samples])
        return x, 2 * x


def job(*, samples: int = 96, batch_size: int = 4, burn_s: float = 0.0) -> TrainJob:
    """Return the job; `burn_s` is how long the third batch of rank 1 takes."""
    seen = 0

    def step(ctx: StepContext, batch: Batch) -> torch.Tensor:
        nonlocal seen
        seen += 1
        if burn_s and (ctx.rank, seen) == (1, 3):
            hold_interpreter(burn_s)
        x, y = batch
        ctx.optimizer.zero_grad()
        loss = nn.functional.mse_loss(ctx.model(x), y)
        ctx.backward(loss)
        ctx.optimizer_step()
        return loss

    return TrainJob(
        model=lambda: nn.Linear(1, 1),
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.05),
        dataset=lambda: Points(samples),
        step=step,
        batch_size=batch_size,
    )
