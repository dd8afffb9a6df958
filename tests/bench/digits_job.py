"""The recipe `digits` on ranks of unequal speed: each step waits a time of its rank's own.

What it is: the recipe's own job, with a wait behind its step.
What it is not: another task.
Who drives it: `digits_seeds`, as `flodl headless …/digits_job.py:job`.
"""

import dataclasses
import threading

import torch

from flodl_core.recipes import digits
from flodl_core.training.job import Batch, StepContext, TrainJob


def job(*, waits_ms: float | tuple[float, ...] = 0.0, epochs: int = 10) -> TrainJob:
    """Return the recipe's job for ranks that wait, one number a rank."""
    waits = waits_ms if isinstance(waits_ms, tuple) else (waits_ms,)
    recipe = digits.job(epochs=epochs)

    def step(ctx: StepContext, batch: Batch) -> torch.Tensor | float:
        loss = recipe.step(ctx, batch)
        threading.Event().wait(waits[min(ctx.rank, len(waits) - 1)] / 1e3)
        return loss

    return dataclasses.replace(recipe, step=step)
