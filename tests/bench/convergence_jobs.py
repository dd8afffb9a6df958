"""The recipes `digits` and `charlm` on ranks of unequal speed: each step waits besides.

What it is: the recipes' own jobs, small enough for two cores, with a wait behind each step
that is its rank's own. Every rank computes in one thread, also where it is alone: threads
that wait for each other on a busy machine take tens of times as long.
What it is not: other tasks.
Who drives it: `convergence`, as `flodl headless …/convergence_jobs.py:digits`.
"""

import dataclasses
import threading

import torch

from flodl_core.recipes import charlm as charlm_recipe
from flodl_core.recipes import digits as digits_recipe
from flodl_core.training.job import Batch, StepContext, TrainJob


def digits(
    *, waits_ms: float | tuple[float, ...] = 0.0, batch_size: int = 32, epochs: int = 20
) -> TrainJob:
    """Return the recipe's job for ranks that wait, one number a rank."""
    return _waiting(digits_recipe.job(batch_size=batch_size, epochs=epochs), waits_ms)


def charlm(
    *,
    waits_ms: float | tuple[float, ...] = 0.0,
    lr: float = 4e-3,
    batch_size: int = 16,
    epochs: int = 1,
) -> TrainJob:
    """Return the recipe's job with a model of one block and width 64, likewise."""
    recipe = charlm_recipe.job(
        width=64, layers=1, context=64, lr=lr, batch_size=batch_size, epochs=epochs
    )
    return _waiting(recipe, waits_ms)


def _waiting(recipe: TrainJob, waits_ms: float | tuple[float, ...]) -> TrainJob:
    waits = waits_ms if isinstance(waits_ms, tuple) else (waits_ms,)

    def step(ctx: StepContext, batch: Batch) -> torch.Tensor | float:
        torch.set_num_threads(1)
        loss = recipe.step(ctx, batch)
        threading.Event().wait(waits[min(ctx.rank, len(waits) - 1)] / 1e3)
        return loss

    return dataclasses.replace(recipe, step=step, report=None)
