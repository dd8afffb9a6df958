"""A small job with all that a rank alone has: Adam, dropout, counted batches, chance in samples."""

import threading

import torch
from torch import nn

from flodl_core.training.batches import Batch
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext


class Points:
    """Noisy points of a plane, from their index and their own chance."""

    def __len__(self) -> int:
        return 480

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.tensor([index / 480, (index * 7 % 480) / 480])
        return x + 0.05 * torch.randn(2), x.sum()


class Net(nn.Module):
    """Float buffers that are averaged, and an integer one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 16)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return one number a point."""
        found: torch.Tensor = self.last(self.drop(self.norm(torch.tanh(self.first(x)))))
        return found.squeeze(-1)


def job(*, pause_ms: float = 0.0) -> TrainJob:
    """Return the job; each step takes `pause_ms` longer."""

    def step(ctx: StepContext, batch: Batch) -> torch.Tensor:
        threading.Event().wait(pause_ms / 1e3)
        x, y = batch
        ctx.optimizer.zero_grad()
        loss = nn.functional.mse_loss(ctx.model(x), y)
        ctx.backward(loss)
        ctx.optimizer_step()
        return loss

    return TrainJob(
        model=Net,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.02),
        dataset=Points,
        step=step,
        scheduler=lambda global_step: 1 / (1 + 0.01 * global_step),
        batch_size=4,
        epochs=2,
    )
