"""What tests of ranks that train on during an average share: job, claim, memory of their own."""

import numpy as np
import torch
from torch import nn

from flodl_core.ids import Cycle
from flodl_core.training.flat import FlatLayout
from flodl_core.training.job import TrainJob
from flodl_core.training.snapshot import Claim


def claim(cycle, *, n=1):
    return Claim(cycle=Cycle(cycle), n=n, samples=8 * n, gamma=1.0, world_size=2)


def in_own_memory(model, geometry):
    return FlatLayout(model, geometry, params_memory=np.zeros(geometry.params_numel, np.float32))


def linear_job():
    return TrainJob(
        model=lambda: nn.Linear(3, 2),
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=lambda: [0] * 16,
        step=lambda ctx, batch: 0.0,
    )
