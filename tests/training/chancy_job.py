"""A job whose samples draw from every generator, and whose data can fail on demand.

Loader workers import it as a file; tests import it beside them.
"""

import os
import random
import signal
import sqlite3
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from flodl_core.training.job import TrainJob

SAMPLES = 64


class Item(NamedTuple):
    index: int
    noise: torch.Tensor
    plain: float
    array: np.ndarray


class Chancy:
    """64 samples; `fault` is what happens at sample 40, `mark` a file that makes it happen once."""

    def __init__(self, *, samples=SAMPLES, fault="", mark=""):
        if fault == "no data":
            raise FileNotFoundError("the data are not here")
        if fault == "dies in opening":
            os.kill(os.getpid(), signal.SIGKILL)
        self.samples, self.fault, self.mark = samples, fault, Path(mark) if mark else None
        self.built_with = float(torch.rand(()))

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        if index == 40 and self.fault:
            self.fail()
        return Item(index, torch.rand(5), random.random(), np.random.rand(2, 3))

    def fail(self):
        if self.mark is not None:
            if self.mark.exists():
                return
            self.mark.write_text(str(os.getpid()))
        if self.fault == "raises":
            raise ValueError("sample 40 is torn")
        if self.fault == "raises oddly":
            raise ValueError("cat\udc80.png " + "x" * (80 << 20))
        if self.fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "leaves":
            os._exit(3)
        if self.fault == "hangs":
            threading.Event().wait(600)


def collate(items):
    """Every kind of leaf; the last value is drawn where the batch is made."""
    return {
        "index": [item.index for item in items],
        "threads": torch.get_num_threads(),
        "noise": torch.stack([item.noise for item in items]),
        "items": items[0],
        "array": np.stack([item.array for item in items]),
        "plain": torch.tensor([item.plain for item in items], dtype=torch.float64),
        "mixed": torch.rand(2) + random.random() + np.random.rand(),
    }


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 8)
        self.last = nn.Linear(8, 1)

    def forward(self, noise):
        return self.last(nn.functional.dropout(torch.tanh(self.first(noise)), 0.2, self.training))


def step(ctx, batch):
    """A step that draws from every generator too."""
    ctx.optimizer.zero_grad()
    goal = batch["plain"].float() + random.random() * 0.1 + float(np.random.rand()) * 0.1
    loss = nn.functional.mse_loss(ctx.model(batch["noise"]).squeeze(-1), goal)
    ctx.backward(loss)
    ctx.optimizer_step()
    return loss


def job(*, samples=SAMPLES, fault="", mark="", collated=True, workers=0):
    return TrainJob(
        model=Net,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
        dataset=lambda: Chancy(samples=samples, fault=fault, mark=mark),
        step=step,
        collate={True: collate, False: unfit, "gathered": Gathered}[collated],
        batch_size=8,
        workers=workers,
    )


class Gathered(list):
    """A list that only its own way makes."""

    def __init__(self, items, /):
        if not isinstance(items[0], Item):
            raise TypeError("made of samples alone")
        super().__init__([item.noise for item in items])


def unfit(items):
    """A batch that no worker can hand over."""
    return {"noise": torch.stack([item.noise for item in items]), "base": sqlite3.connect}
