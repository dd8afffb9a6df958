"""`digits`: a small convolutional net on scikit-learn's handwritten digits.

What it is: a packaged job with BatchNorm, so that float buffers are averaged and
an integer counter stays local, and an accuracy that everybody can judge.
What it is not: part of the plain install; the data come with the extra `demo`.
Who drives it: `flodl headless digits`.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from flodl_core.errors import JobError
from flodl_core.training.batches import Batch
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext

HELD_OUT = 5
"""One image in so many is held out."""


def job(
    *, channels: int = 16, lr: float = 5e-3, batch_size: int = 32, epochs: int = 10
) -> TrainJob:
    """Return the job.

    Args:
        channels: of the first layer.
        lr: learning rate.
        batch_size: images of one batch of one rank.
        epochs: passes over the images.

    Raises:
        JobError: scikit-learn is missing, or an option cannot be used.
    """
    if not 1 <= channels <= 1024:
        raise JobError(f"digits: channels is {channels}", fix="give 1 … 1024")
    images, labels = load_images()
    held_out = torch.arange(len(labels)) % HELD_OUT == 0
    digest = hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()

    def optimizer(module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(module.parameters(), lr=lr)

    return TrainJob(
        model=lambda: make_model(channels),
        optimizer=optimizer,
        dataset=lambda: TensorDataset(images[~held_out], labels[~held_out]),
        step=step,
        batch_size=batch_size,
        epochs=epochs,
        eval_dataset=lambda: TensorDataset(images[held_out], labels[held_out]),
        metric=accuracy,
        metric_name="accuracy",
        dataset_version=digest[:16],
    )


@lru_cache(maxsize=1)
def load_images() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images, f32 of shape (1797, 1, 8, 8) from 0 to 1, and their int64 labels.

    Raises:
        JobError: scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise JobError(
            "the recipe digits needs scikit-learn, which is not installed",
            fix='pip install "flodl[demo]"',
        ) from error
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    return images, torch.tensor(data.target, dtype=torch.int64)


def make_model(channels: int) -> nn.Module:
    """Return the net: two convolutions with BatchNorm, then a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(2 * channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * channels, 10),
    )


def step(ctx: StepContext, batch: Batch) -> torch.Tensor:
    """Train one batch; returns its mean cross-entropy."""
    ctx.optimizer.zero_grad(set_to_none=True)
    loss = ctx.accumulate(batch, lambda piece: _loss_of(ctx, piece))
    ctx.optimizer_step()
    return loss


def _loss_of(ctx: StepContext, batch: Batch) -> torch.Tensor:
    images, labels = batch
    scores = ctx.model(images)
    right = (scores.detach().argmax(dim=1) == labels).sum()
    ctx.scalar("train accuracy", right, count=len(labels))
    return functional.cross_entropy(scores, labels)


def accuracy(model: nn.Module, batches: Iterable[Batch], device: torch.device) -> float:
    """Return the part of the images that is recognised, 0 to 1."""
    right, seen = 0, 0
    for images, labels in batches:
        guessed = model(images.to(device)).argmax(dim=1).cpu()
        right += int((guessed == labels.cpu()).sum())
        seen += len(labels)
    return right / max(1, seen)
