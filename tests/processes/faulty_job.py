"""A small job that goes wrong as it is told: raises, or spoils its own values."""

import torch
from torch import nn

from flodl_core.training.batches import Batch
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext
from flodl_core.units import MIB

EVERY_RANK = -1
Numbers = int | tuple[int, ...]


class Points:
    """Points of a line, from their index alone."""

    def __init__(self, samples: int, slope: float) -> None:
        self._samples, self._slope = samples, slope

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.tensor([index / self._samples])
        return x, self._slope * x


def job(
    *,
    fault: str = "none",
    rank: Numbers = EVERY_RANK,
    at: Numbers = 2,
    times: Numbers = 1,
    width: int = 4,
    slope: float = 2.0,
    samples: int = 256,
) -> TrainJob:
    """Return the job.

    Args:
        fault: none, raise, exit, nan, memory, which takes memory until the kernel ends it, or
            chatty, which prints a mebibyte.
        rank: that it befalls; -1 for every one. Several are several faults, each
            with its own `at` and `times`.
        at: number of the batch, from 1, in that rank.
        times: batches in a row.
        width: of the hidden layer.
        slope: of the data.
        samples: of the data.
    """
    seen = 0
    faults = list(zip(each(rank), each(at), each(times), strict=True))

    def step(ctx: StepContext, batch: Batch) -> torch.Tensor:
        nonlocal seen
        seen += 1
        x, y = batch
        ctx.optimizer.zero_grad()
        loss = nn.functional.mse_loss(ctx.model(x), y)
        ctx.backward(loss)
        ctx.optimizer_step()
        for whom, first, batches in faults:
            if whom in (EVERY_RANK, ctx.rank) and first <= seen < first + batches:
                go_wrong(ctx.model)
        return loss

    def go_wrong(model: nn.Module) -> None:
        if fault == "raise":
            raise ValueError("the labels of this batch are missing")
        if fault == "exit":
            raise SystemExit(9)
        if fault == "chatty":
            print(f"{seen:>3} " + "a word " * (MIB // 7), flush=True)
        if fault == "memory":
            taken = []
            while True:
                taken.append(b"\1" * (64 * MIB))
        if fault == "nan":
            with torch.no_grad():
                next(model.parameters()).fill_(torch.nan)

    return TrainJob(
        model=lambda: nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1)),
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        dataset=lambda: Points(samples, slope),
        step=step,
        batch_size=8,
        epochs=2,
    )


def each(numbers: Numbers) -> tuple[int, ...]:
    """One number or several, as several."""
    return numbers if isinstance(numbers, tuple) else (numbers,)
