"""A small job in which one function of a rank never returns, in a place that it is told."""

import threading
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from flodl_core.training.batches import Batch
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext

EVERY_RANK = -1


class Place:
    """Where this process stands: which rank, and how many batches it has done."""

    def __init__(self, hangs: dict[str, int], at: int) -> None:
        self._hangs, self._at = hangs, at
        self.rank: int | None = None
        self.batches = 0

    def pass_by(self, place: str) -> None:
        """Never come back, if this is the place of this rank."""
        wanted = self._hangs.get(place)
        if wanted == EVERY_RANK or (
            wanted is not None and wanted == self.rank and self.batches >= self._at
        ):
            hang_for_ever()


def hang_for_ever() -> None:
    """Wait for what nobody does."""
    threading.Event().wait()


class Points:
    """Points of a line, from their index alone."""

    def __init__(self, place: Place, samples: int, bad: int = -1) -> None:
        self._place, self._samples, self._bad = place, samples, bad

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self._place.pass_by("dataset")
        if index == self._bad:
            hang_for_ever()
        x = torch.tensor([index / self._samples])
        return x, 2 * x


def job(
    *,
    step_of: int = -2,
    dataset_of: int = -2,
    collate_of: int = -2,
    scheduler_of: int = -2,
    metric_of: int = -2,
    report_of: int = -2,
    bad_sample: int = -1,
    at: int = 3,
    samples: int = 256,
) -> TrainJob:
    """Return the job; each number is the rank whose function hangs, from its batch `at` on.

    Whoever reads `bad_sample` hangs too: a rank, or one of its loader workers.
    """
    place = Place(
        {
            "step": step_of,
            "dataset": dataset_of,
            "collate": collate_of,
            "scheduler": scheduler_of,
            "metric": metric_of,
            "report": report_of,
        },
        at,
    )

    def step(ctx: StepContext, batch: Batch) -> torch.Tensor:
        place.rank = ctx.rank
        place.pass_by("step")
        x, y = batch
        ctx.optimizer.zero_grad()
        loss = nn.functional.mse_loss(ctx.model(x), y)
        ctx.backward(loss)
        ctx.optimizer_step()
        place.batches += 1
        return loss

    def collate(samples: list[Any]) -> Batch:
        place.pass_by("collate")
        made: Batch = default_collate(samples)
        return made

    def scheduler(_: int) -> float:
        place.pass_by("scheduler")
        return 1.0

    def metric(*_: object) -> float:
        place.pass_by("metric")
        return 0.5

    def report(_: nn.Module) -> str:
        place.pass_by("report")
        return "all is well"

    evaluates = EVERY_RANK in (metric_of, report_of)
    return TrainJob(
        model=lambda: nn.Linear(1, 1),
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.05),
        dataset=lambda: Points(place, samples, bad_sample),
        step=step,
        collate=collate,
        scheduler=scheduler,
        metric=metric if evaluates else None,
        eval_dataset=(lambda: Points(Place({}, 0), 8)) if evaluates else None,
        report=report if evaluates else None,
        batch_size=4,
        epochs=1,
    )
