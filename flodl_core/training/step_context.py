"""What a job's step is given: its model, its optimizer, and helpers for one batch.

The helpers cover gradient accumulation over micro-batches, clipping, autocast
and gradient scaling, and they notice whether the optimizer step was applied: a
batch whose step a scaler skipped adds nothing to the rank's weight. A step may
also call `loss.backward()` and `optimizer.step()` itself. The training worker
brackets each batch with `begin_batch` and `finish_batch`.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from flodl_core.training.batches import Batch
from flodl_core.training.micro_batches import cut_batch
from flodl_core.training.scalar_sum import ScalarSum
from flodl_core.training.scalars import ScalarNotes

_AUTOCAST_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where and how a rank trains; the same for the whole run."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    batch_size: int = 1
    """Samples of one batch."""
    micro_batch: int | None = None
    """Largest number of samples that go through the model at once; None is the whole batch."""
    precision: str = "float32"


class StepContext:
    """One rank's view of the batch that it is training.

    Attributes:
        model: as the job's `compile` returned it, else as the job built it.
        optimizer: as the job built it.
        placement: rank, world size, device and batch sizes.
        epoch: event number of the epoch in progress.
        global_step: batches that the cohort has committed, advanced within a window.
        steps_applied: optimizer steps of this rank since it began.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, *, placement: Placement) -> None:
        self.model = model
        self.optimizer = optimizer
        self.placement = placement
        self.epoch = 0
        self.global_step = 0
        self.steps_applied = 0
        self._applied = False
        self._unscaled = False
        self._scalars = ScalarNotes()
        self._scaler = self._make_scaler()
        state = optimizer.state_dict()["state"]
        self._initial_state = copy.deepcopy(state) if state else {}
        optimizer.register_step_post_hook(self._note_step)

    @property
    def rank(self) -> int:
        """This process's rank, 0 … world_size - 1."""
        return self.placement.rank

    @property
    def world_size(self) -> int:
        """Ranks at the start of the run."""
        return self.placement.world_size

    @property
    def device(self) -> torch.device:
        """Where the model lies; the batch that the step receives is already there."""
        return self.placement.device

    def autocast(self) -> AbstractContextManager[None]:
        """Return a context in which the job's precision holds; float32 changes nothing."""
        precision = self.placement.precision
        return torch.autocast(
            self.device.type,
            dtype=_AUTOCAST_DTYPES[precision] if precision != "float32" else torch.bfloat16,
            enabled=precision != "float32",
        )

    def micro_batches(self, batch: Batch) -> Iterator[tuple[Batch, float]]:
        """Yield the batch in pieces of `placement.micro_batch` samples, each with its share.

        A mean loss of a piece, passed to `backward` with that share, adds up to the
        gradient of the whole batch.

        Raises:
            JobError: the batch cannot be cut.
        """
        if self.placement.micro_batch is None:
            yield batch, 1.0
        else:
            yield from cut_batch(batch, self.placement.micro_batch)

    def backward(self, loss: torch.Tensor, *, share: float = 1.0) -> None:
        """Add the gradient of `share` × loss, scaled when the precision is float16."""
        weighted = loss if share == 1.0 else loss * share
        torch.autograd.backward(self._scaler.scale(weighted))

    def accumulate(self, batch: Batch, loss_of: Callable[[Batch], torch.Tensor]) -> torch.Tensor:
        """Run forward and backward of the batch piece by piece, under autocast.

        Args:
            batch: what the step was given.
            loss_of: the mean loss of a piece of it.

        Returns:
            The mean loss of the batch, detached.
        """
        total: torch.Tensor | None = None
        for piece, share in self.micro_batches(batch):
            with self.autocast():
                loss = loss_of(piece)
            self.backward(loss, share=share)
            part = loss.detach() * share
            total = part if total is None else total + part
        assert total is not None, "a batch is never empty"
        return total

    def clip_grad_norm(
        self, max_norm: float, *, parameters: Iterable[nn.Parameter] | None = None
    ) -> torch.Tensor:
        """Scale gradients down to a total norm of at most `max_norm`; returns the norm before."""
        self._unscale()
        chosen = self.model.parameters() if parameters is None else parameters
        return nn.utils.clip_grad_norm_(chosen, max_norm)

    def optimizer_step(self) -> bool:
        """Step the optimizer, unless the loss scaler skips it for non-finite gradients.

        Returns:
            Whether the step was applied.
        """
        if not self._scaler.is_enabled():
            self.optimizer.step()
            self._applied = True
            return True
        before, steps_before = self._scaler.get_scale(), self.steps_applied
        self._scaler.step(self.optimizer)
        self._scaler.update()
        self._unscaled = False
        applied = self.steps_applied > steps_before and self._scaler.get_scale() >= before
        if not applied:
            self.steps_applied = steps_before
        self._applied = applied
        return applied

    def note_step(self) -> None:
        """Say that the optimizer has stepped where nobody saw it, as in a replayed CUDA graph.

        A batch without a step adds nothing to this rank's weight in the average.
        """
        self._note_step()

    def scalar(self, name: str, value: float | torch.Tensor, *, count: float = 1.0) -> None:
        """Note a number of this batch; each epoch's report has the mean over all counts.

        A value that is not finite is left out, and its count with it. One on a GPU is added
        up there; nothing waits for it before the epoch is reported.

        Args:
            name: such as `accuracy`; at most 64 names in a run.
            value: the sum over `count` things, a number or a tensor of one element.
            count: things that the value is a sum of.

        Raises:
            JobError: an argument is none of these, or a CUDA graph is being recorded.
        """
        self._scalars.note(name, value, count)

    def take_scalars(self) -> dict[str, ScalarSum]:
        """Return the sums noted since the last call, by name."""
        return self._scalars.take()

    def begin_batch(self, *, epoch: int, global_step: int, lr_factor: float | None) -> None:
        """Prepare for the next batch: position, learning rate, and no step seen yet."""
        self.epoch, self.global_step = epoch, global_step
        self._applied = False
        if lr_factor is not None:
            for group in self.optimizer.param_groups:
                _set_lr(group, lr_factor)

    def finish_batch(self) -> bool:
        """Return whether an optimizer step was applied since `begin_batch`."""
        if self._unscaled:  # clipped, and then not stepped: the next batch has its own gradients
            self._scaler.update()
            self._unscaled = False
        return self._applied

    def reset_state(self) -> None:
        """Forget optimizer state, gradients and loss scale: non-finite values may be in them."""
        self.optimizer.zero_grad(set_to_none=False)  # a CUDA graph goes on writing to them
        self.reset_optimizer()
        self._scaler = self._make_scaler()
        self._unscaled = False

    def reset_optimizer(self) -> None:
        """Begin anew with the optimizer's state; rates, gradients and loss scale stay."""
        self.optimizer.state.clear()
        if self._initial_state:
            whole = self.optimizer.state_dict()
            whole["state"] = copy.deepcopy(self._initial_state)
            self.optimizer.load_state_dict(whole)

    def scaler_state(self) -> dict[str, Any]:
        """Return the loss scaler's state; empty where the precision needs none."""
        return self._scaler.state_dict()

    def load_scaler(self, state: dict[str, Any]) -> None:
        """Go on from a loss scaler's state; nothing changes where either has none."""
        if state and self._scaler.is_enabled():
            self._scaler.load_state_dict(state)

    def learning_rate(self) -> float:
        """Return the learning rate of the optimizer's first group."""
        groups = self.optimizer.param_groups
        return float(groups[0]["lr"]) if groups and "lr" in groups[0] else 0.0

    def _make_scaler(self) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device.type, enabled=self.placement.precision == "float16")

    def _unscale(self) -> None:
        if self._scaler.is_enabled() and not self._unscaled:
            self._scaler.unscale_(self.optimizer)
            self._unscaled = True

    def _note_step(self, *_: object) -> None:
        self.steps_applied += 1
        self._applied = True


def _set_lr(group: dict[str, Any], factor: float) -> None:
    first = group.setdefault("initial_lr", float(group["lr"]))
    if torch.is_tensor(group["lr"]):
        group["lr"].fill_(first * factor)
    else:
        group["lr"] = first * factor
