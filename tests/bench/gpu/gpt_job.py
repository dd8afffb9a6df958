"""A GPT of 124 M parameters on made-up tokens, bf16 autocast, 8 x 512 tokens a batch.

    flodl headless tests/bench/gpu/gpt_job.py:job --ranks 2 --mode nccl_cadence

GPT_SAMPLES sequences are an epoch. Rank r waits longer after each batch by the r-th number
of GPT_EXTRA_MS (milliseconds, with commas), as `gpu_ddp_baseline.py` does, whose
model this is.
"""

import os
import threading

import torch
from torch import nn
from torch.nn import functional

from flodl_core.training.batches import Batch
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext

WIDTH, LAYERS, HEADS, TOKENS, WORDS, BATCH = 768, 12, 12, 512, 50257, 8
SAMPLES = int(os.environ.get("GPT_SAMPLES", "4096"))
EXTRA_MS = [float(one) for one in os.environ.get("GPT_EXTRA_MS", "0").split(",")]


class Block(nn.Module):
    """Attention, then two linear layers, each after a norm and added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the block makes of x, of shape (batch, tokens, WIDTH)."""
        batch, tokens, _ = x.shape
        parts = self.attend(self.norm1(x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.think(self.norm2(x))


class Gpt(nn.Module):
    """The model; its output layer is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of predicting y after x."""
        hidden = self.norm(self.blocks(self.words(x) + self.places.weight[: x.shape[1]]))
        scores = (hidden @ self.words.weight.T).flatten(0, 1).float()
        return functional.cross_entropy(scores, y.flatten())


class Tokens:
    """Made-up sequences, the same on every host."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(index)
        return torch.randint(WORDS, (TOKENS + 1,), generator=generator)


def step(ctx: StepContext, batch: Batch) -> torch.Tensor:
    """Train one batch; a slow rank waits as long as it is said to."""
    assert isinstance(batch, torch.Tensor)
    is_gpu = batch.device.type == "cuda"
    with torch.autocast(batch.device.type, torch.bfloat16, enabled=is_gpu):
        loss: torch.Tensor = ctx.model(batch[:, :-1], batch[:, 1:])
    ctx.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    ctx.optimizer_step()
    extra_ms = EXTRA_MS[ctx.rank] if ctx.rank < len(EXTRA_MS) else 0.0
    if extra_ms:
        if is_gpu:
            torch.cuda.synchronize()
        threading.Event().wait(extra_ms / 1e3)
    return loss.detach()


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW, fused where it can be."""
    is_gpu = next(model.parameters()).is_cuda
    return torch.optim.AdamW(model.parameters(), 3e-4, fused=is_gpu)


def job() -> TrainJob:
    """Return the job."""
    return TrainJob(
        model=Gpt, optimizer=make_optimizer, dataset=Tokens, step=step, batch_size=BATCH, epochs=1
    )
