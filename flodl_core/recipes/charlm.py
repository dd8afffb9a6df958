"""`charlm`: a small GPT that learns to write like Python's language reference.

What it is: a packaged job that trains on any machine in a few minutes and shows
what its model writes. A global step is one batch of one rank; the learning rate
follows it, so that a world of any size gets the same schedule over its epochs: those of
the options `epochs` and `batch_size` (`--job-arg epochs=10`), which the run has too unless it
is given others by `--epochs` or `--batch-size`. Nothing tells a job of these.
What it is not: a good language model.
Who drives it: `flodl headless charlm`.

Shapes: B samples, T characters of context, D width, H heads, V symbols.
"""

import logging
import math
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional

from flodl_core.errors import JobError
from flodl_core.recipes.charlm_text import Windows, load_corpus
from flodl_core.training.batches import Batch
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext

_log = logging.getLogger(__name__)

PROMPT = "The "
REPORT_CHARACTERS = 400


class Block(nn.Module):
    """Causal attention and a feed-forward layer, each after a norm and around a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm_forward = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:  # noqa: N803 - shape suffixes
        """Return the same shape."""
        b, t, d = x_BTD.shape
        qkv = self.qkv(self.norm_attention(x_BTD)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BTD = x_BTD + self.out(mixed.transpose(1, 2).reshape(b, t, d))  # noqa: N806
        fed: torch.Tensor = self.down(functional.gelu(self.up(self.norm_forward(x_BTD))))
        return x_BTD + fed


class CharGPT(nn.Module):
    """Characters in, logits of the next character out; input and output embeddings are tied."""

    def __init__(self, symbols: int, *, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.context = context
        self.embed = nn.Embedding(symbols, width)
        self.place = nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols, bias=False)
        self.head.weight = self.embed.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                deep = name.endswith(("out.weight", "down.weight"))
                std = 0.02 / math.sqrt(2 * layers) if deep else 0.02
                nn.init.normal_(parameter, std=std)

    def forward(self, ids_BT: torch.Tensor) -> torch.Tensor:  # noqa: N803 - shape suffixes
        """Return logits of shape (B, T, V) for ids of shape (B, T), T at most `context`."""
        x = self.embed(ids_BT) + self.place[: ids_BT.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def job(
    *,
    width: int = 96,
    layers: int = 3,
    context: int = 64,
    lr: float = 4e-3,
    batch_size: int = 16,
    epochs: int = 2,
) -> TrainJob:
    """Return the job.

    Args:
        width: of the model, a multiple of 32.
        layers: blocks of the model.
        context: characters that the model sees.
        lr: the highest learning rate.
        batch_size: windows of one batch of one rank, for run and schedule.
        epochs: passes over the windows, which overlap by three quarters, likewise.

    Raises:
        JobError: an option cannot be used.
    """
    corpus = load_corpus()
    _check(width=width, layers=layers, context=context)
    stride = max(1, context // 4)
    total_steps = epochs * max(
        1, len(Windows(corpus.train_ids, context=context, stride=stride)) // batch_size
    )

    def model() -> nn.Module:
        return CharGPT(
            len(corpus.symbols), context=context, width=width, layers=layers, heads=width // 32
        )

    def optimizer(module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            module.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.05, foreach=True
        )

    told: list[int] = []

    def schedule(global_step: int) -> float:
        if global_step > 1.1 * total_steps and not told:
            told.append(global_step)
            _log.warning(
                "charlm's learning rate stays at 2 %%: its schedule ended with batch %d, for "
                "epochs=%d and batch_size=%d; give --job-arg epochs=N instead of --epochs N, and "
                "likewise batch_size",
                total_steps, epochs, batch_size,
            )  # fmt: skip
        warm = total_steps * 0.05
        if global_step < warm:
            return (global_step + 1) / (warm + 1)
        done = min(1.0, (global_step - warm) / (total_steps - warm))
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))

    return TrainJob(
        model=model,
        optimizer=optimizer,
        dataset=lambda: Windows(corpus.train_ids, context=context, stride=stride),
        step=step,
        batch_size=batch_size,
        epochs=epochs,
        eval_dataset=lambda: Windows(corpus.validation_ids, context=context, stride=context),
        metric=nats_per_character,
        metric_name="nats/char",
        scheduler=schedule,
        dataset_version=corpus.digest[:16],
        report=write_text,
    )


def step(ctx: StepContext, batch: Batch) -> torch.Tensor:
    """Train one batch; returns the mean loss in nats a character."""
    ctx.optimizer.zero_grad(set_to_none=True)
    loss = ctx.accumulate(batch, lambda piece: loss_of(ctx.model, piece))
    ctx.clip_grad_norm(1.0)
    ctx.optimizer_step()
    return loss


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy of a batch of (inputs, targets)."""
    inputs, targets = batch
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def nats_per_character(model: nn.Module, batches: Iterable[Batch], device: torch.device) -> float:
    """Return the mean loss over all characters of the batches."""
    total, characters = 0.0, 0
    for inputs, targets in batches:
        loss = loss_of(model, (inputs.to(device), targets.to(device)))
        total += float(loss) * targets.numel()
        characters += targets.numel()
    return total / max(1, characters)


@torch.no_grad()
def write_text(
    model: nn.Module, *, characters: int = REPORT_CHARACTERS, temperature: float = 0.7
) -> str:
    """Return what the model writes after a short prompt; the same model, the same text.

    Args:
        model: a CharGPT.
        characters: how many to write.
        temperature: below 1 prefers what is likely.
    """
    corpus = load_corpus()
    device = next(model.parameters()).device
    context = int(getattr(model, "context", 64))
    chance = torch.Generator().manual_seed(0)
    ids = corpus.encode(PROMPT)
    for _ in range(characters):
        window = torch.tensor([ids[-context:]], device=device)
        likely = torch.softmax(model(window)[0, -1].float().cpu() / temperature, dim=-1)
        ids.append(int(torch.multinomial(likely, 1, generator=chance)))
    return corpus.decode(ids)


def _check(*, width: int, layers: int, context: int) -> None:
    if width < 32 or width % 32:
        raise JobError(f"charlm: width is {width}", fix="give a multiple of 32, such as 96")
    for name, value, largest in (("layers", layers, 64), ("context", context, 4096)):
        if not 1 <= value <= largest:
            raise JobError(f"charlm: {name} is {value}", fix=f"give 1 … {largest}")
