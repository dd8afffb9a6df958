"""A small network on pictures that are large: 96 of 3 x 224 x 224 f32 values a batch, 58 MB.

    flodl headless tests/bench/gpu/pictures_job.py:job --ranks 1

What a copy to the GPU and pinned memory cost shows here; making the batch costs nothing.
"""

import torch
from torch import nn
from torch.nn import functional

from flodl_core.training.batches import Batch
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext

BATCH, SIDE, CLASSES, SAMPLES = 96, 224, 10, 40_000


class Pictures:
    """Numbers of pictures; the batch itself is the same each time."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        return index % CLASSES


class Album:
    """Makes batches of one block of pictures."""

    def __init__(self) -> None:
        self.block: torch.Tensor | None = None

    def __call__(self, samples: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the block and the samples' classes."""
        if self.block is None:
            self.block = torch.rand(
                BATCH, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1)
            )
        return self.block[: len(samples)], torch.tensor(samples)


def network() -> nn.Module:
    """Return five strided convolutions and a linear layer."""
    layers: list[nn.Module] = []
    for width_in, width_out in ((3, 64), (64, 128), (128, 256), (256, 256), (256, 256)):
        layers += [nn.Conv2d(width_in, width_out, 3, 2, 1), nn.BatchNorm2d(width_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, CLASSES))


def step(ctx: StepContext, batch: Batch) -> torch.Tensor:
    """Train one batch in bf16."""
    pictures, classes = batch
    with torch.autocast(pictures.device.type, torch.bfloat16, enabled=pictures.is_cuda):
        loss: torch.Tensor = functional.cross_entropy(ctx.model(pictures).float(), classes)
    ctx.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    ctx.optimizer_step()
    return loss.detach()


def job() -> TrainJob:
    """Return the job."""
    return TrainJob(
        model=network,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), 1e-3),
        dataset=Pictures,
        collate=Album(),
        step=step,
        batch_size=BATCH,
        epochs=1,
    )
