"""The recipe `synthetic` on ranks whose steps take a different time each, up to a part either way.

What it is: the recipe's own job with a wait of its own behind each step, drawn anew for every
step from a generator of the rank, so that two runs wait alike.
What it is not: a task to learn.
Who drives it: `recipe_share`, as `flodl headless …/jitter_job.py:job`.
"""

import dataclasses
import random
import threading

import torch

from flodl_core.recipes import synthetic
from flodl_core.training.job import Batch, StepContext, TrainJob


class Waits:
    """The waits of one rank, in its order: uniform around a mean.

    Args:
        mean_ms: of all waits.
        jitter: each takes up to this part of the mean more or less; 0 to below 1.
        seed: of the draws.
    """

    def __init__(self, mean_ms: float, jitter: float, seed: int) -> None:
        self._mean_ms = mean_ms
        self._jitter = jitter
        self._chance = random.Random(seed)

    def next_s(self) -> float:
        """Return the next wait in seconds."""
        return self._mean_ms * (1 + self._jitter * self._chance.uniform(-1.0, 1.0)) / 1e3


def job(
    *,
    step_ms: float | tuple[float, ...],
    jitter: float = 0.2,
    samples: int = 100_000_000,
    epochs: int = 1,
) -> TrainJob:
    """Return the job.

    Args:
        step_ms: mean extra milliseconds a step, one for all ranks or one a rank.
        jitter: each wait takes up to this part more or less.
        samples: of the data.
        epochs: passes over them.
    """
    recipe = synthetic.job(samples=samples, epochs=epochs)
    means_ms = synthetic.wait_times_ms(step_ms)
    waits: dict[int, Waits] = {}

    def step(ctx: StepContext, batch: Batch) -> torch.Tensor | float:
        if ctx.rank not in waits:
            waits[ctx.rank] = Waits(synthetic.wait_of(means_ms, ctx.rank), jitter, ctx.rank)
        loss = recipe.step(ctx, batch)
        threading.Event().wait(waits[ctx.rank].next_s())
        return loss

    return dataclasses.replace(recipe, step=step)
