"""The task of the bench of unequal ranks as a job: same model, noise, optimizer and batch.

What it is: a TrainJob whose step trains a batch of labelled noise and then waits for a
time of its rank's own, and which notes each batch in a tally. In its first step it can
measure each rank alone, one after another, with the same step and all others resting.
What it is not: data that are worth reading; a batch is drawn as a whole, as in the bench.
Who drives it: `flodl headless …/hetero_job.py:job`, by `hetero_run`.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from hetero_tally import Tally, rest
from torch import nn

from flodl_core.training.job import Batch, StepContext, TrainJob

SIDE: Final = 28
SAMPLES: Final = 1_000_000
_REST_S: Final = 0.005


def make_model(name: str) -> nn.Module:
    """Return the bench's model, `mlp` or `cnn`, with its first weights."""
    torch.manual_seed(7)
    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(SIDE * SIDE, 256),
            nn.ReLU(),
            nn.Linear(256, 256),
            nn.ReLU(),
            nn.Linear(256, 10),
        )
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


class Noise:
    """Sample ids, of which a batch draws labelled noise: a fixed linear teacher on a field."""

    def __init__(self) -> None:
        self._teacher = torch.randn(SIDE * SIDE, 10, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        return index

    def batch(self, ids: list[int]) -> Batch:
        """Return as many samples as there are ids."""
        fields = torch.randn(len(ids), 1, SIDE, SIDE)
        return fields, (fields.flatten(1) @ self._teacher).argmax(1)


def job(
    *,
    tally: str,
    sleeps_ms: float | tuple[float, ...],
    model: str = "mlp",
    batch: int = 32,
    lr: float = 0.05,
    solo_s: float = 0.0,
    slow_factor: float = 1.0,
) -> TrainJob:
    """Return the job.

    Args:
        tally: the file that the ranks note their batches in.
        sleeps_ms: what each rank's step waits after its work, one a rank.
        model: mlp or cnn.
        batch: samples of a batch.
        lr: of the SGD.
        solo_s: how long each rank measures itself alone; 0 for not at all.
        slow_factor: for a second such measure with the waiting stretched; 1 for none.
    """
    sleeps = sleeps_ms if isinstance(sleeps_ms, tuple) else (sleeps_ms,)
    notes = Tally(Path(tally), len(sleeps))
    noise = Noise()
    torch.set_num_threads(1)
    seen = _Adoptions()

    def measure_alone(rank: int) -> None:
        while not all(notes.solo(other) for other in range(rank)):
            rest(_REST_S)
        alone = make_model(model)
        optimizer = torch.optim.SGD(alone.parameters(), lr=lr)
        rates = []
        for factor in dict.fromkeys((1.0, slow_factor)):

            def one(wait_s: float = factor * sleeps[rank] / 1e3) -> None:
                _train(alone, optimizer, noise.batch([0] * batch))
                rest(wait_s)

            rates.append(_rate_of(one, solo_s))
        notes.note_solo(rank, rates[0], rates[-1])
        while not all(notes.solo(other) for other in range(len(sleeps))):
            rest(_REST_S)

    def step(ctx: StepContext, data: Batch) -> float:
        if solo_s and not notes.solo(ctx.rank):
            measure_alone(ctx.rank)
        began = time.monotonic()
        window = seen.before(ctx.model)
        loss = _train(ctx.model, ctx.optimizer, data)
        seen.after(ctx.model)
        rest(notes.factor(ctx.rank) * sleeps[ctx.rank] / 1e3)
        notes.note_batch(ctx.rank, began, time.monotonic(), window)
        return loss

    return TrainJob(
        model=lambda: make_model(model),
        optimizer=lambda module: torch.optim.SGD(module.parameters(), lr=lr),
        dataset=lambda: noise,
        collate=noise.batch,
        step=step,
        batch_size=batch,
    )


class _Adoptions:
    """Counts averages: a weight that is not what the step left has been averaged."""

    def __init__(self) -> None:
        self._count = 0
        self._left: float | None = None

    def before(self, model: nn.Module) -> int:
        value = _mark(model)
        if self._left is not None and value != self._left:
            self._count += 1
        return self._count

    def after(self, model: nn.Module) -> None:
        self._left = _mark(model)


def _mark(model: nn.Module) -> float:
    """Return a value that every step and every average changes."""
    *_, last = model.parameters()
    return float(last.detach()[0])


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, data: Batch) -> float:
    fields, labels = data
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(fields), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(loss.detach())


def _rate_of(one: Callable[[], None], seconds: float) -> float:
    """Return how often a second `one` runs, after a few runs that are not counted."""
    for _ in range(3):
        one()
    count, began = 0, time.perf_counter()
    while (now := time.perf_counter()) < began + seconds:
        one()
        count += 1
    return count / (now - began)
