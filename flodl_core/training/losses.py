"""The loss of each batch as a number, and when the batch was done; of a GPU's, one batch late.

Whoever reads a number off a GPU waits until the GPU has come to it, and has given it
nothing to go on with meanwhile. So the number travels into pinned memory behind its batch,
and is read once the next batch has been given to the GPU:

```
host   launch k ──▶ launch k+1 ──▶ read k ──▶ launch k+2 ──▶ read k+1
GPU        batch k ─────────────▶ batch k+1 ─────────────▶ batch k+2
```

A loss on the host is read at once. The training thread drives it; `batch_notes` keeps the
batch whose loss is still to be read.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch

from flodl_core.net import clock
from flodl_core.training.callbacks import STEP_FIX, number_of, require_number
from flodl_core.units import Seconds

ANCHOR_S: Final[Seconds] = 10.0
"""How long the GPU's clock is trusted since it was last compared with ours."""

Waits = Callable[[], AbstractContextManager[None]]
"""What is entered while a GPU is waited for."""


@dataclass(slots=True)
class ReadLoss:
    """What a batch came to.

    Attributes:
        value: the loss; None where it is not finite, which no sum may hold.
        at: when the batch was done.
    """

    value: float | None
    at: Seconds


class DeviceEvent(Protocol):
    """A point in the order of what a GPU was given; `torch.cuda.Event` is one."""

    def record(self) -> None:
        """Put it after everything that the current stream was given so far."""

    def query(self) -> bool:
        """Return whether the GPU has passed it."""

    def synchronize(self) -> None:
        """Wait until the GPU has passed it."""

    def elapsed_time(self, end_event: Any, /) -> float:  # noqa: ANN401 - one of its own kind
        """Return the milliseconds from this one to another that was passed too."""


@dataclass(slots=True)
class LateLoss:
    """A loss on its way from a GPU, behind its batch."""

    reader: "LossReader"
    number: torch.Tensor
    event: DeviceEvent
    order: int

    @property
    def is_there(self) -> bool:
        """Whether reading it waits for nothing."""
        return self.event.query()

    def read(self) -> ReadLoss:
        """Return it; waits until the batch is done."""
        at = self.reader.wait_for(self.event, self.order)
        return ReadLoss(_finite(float(self.number)), at)


@dataclass(frozen=True, slots=True)
class _Anchor:
    """An event of which both clocks are known."""

    event: DeviceEvent
    order: int
    at: Seconds


def _timing_event() -> DeviceEvent:
    event: DeviceEvent = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event


@dataclass(slots=True)
class LossReader:
    """Reads the losses of one rank.

    Args:
        waits: entered while a GPU is waited for; no code of the job runs so long.
        new_event: makes the mark behind a batch.
        now: our clock.
    """

    waits: Waits = nullcontext
    new_event: Callable[[], DeviceEvent] = _timing_event
    now: Callable[[], Seconds] = clock.now
    _anchor: _Anchor | None = field(init=False, default=None)
    _recorded: int = field(init=False, default=0)
    _slots: list[torch.Tensor] = field(init=False, default_factory=list)

    def begin(self, answer: object) -> ReadLoss | LateLoss:
        """Take what the job's step returned; that of a GPU is on its way afterwards.

        Raises:
            JobError: it is no number.
        """
        if isinstance(answer, torch.Tensor) and _is_on_current_gpu(answer):
            return self.begin_late(answer)
        if isinstance(answer, torch.Tensor) and not answer.is_cpu:
            with self.waits():
                value = number_of("step", answer, fix=STEP_FIX)
        else:
            value = number_of("step", answer, fix=STEP_FIX)
        return ReadLoss(_finite(value), self.now())

    def begin_late(self, loss: torch.Tensor) -> LateLoss:
        """Send a loss to the host behind its batch, and wait for nothing.

        To be read before the next but one is begun.

        Raises:
            JobError: it is no number.
        """
        require_number("step", loss, fix=STEP_FIX)
        number = self._slot(loss.dtype)
        number.copy_(loss.detach().reshape(()), non_blocking=True)
        event, order = self._record()
        return LateLoss(self, number, event, order)

    def _slot(self, dtype: torch.dtype) -> torch.Tensor:
        """Return memory for a number that is read before the next but one is sent."""
        if not self._slots or self._slots[0].dtype is not dtype:
            is_pinned = torch.cuda.is_available()
            self._slots = [
                torch.empty((), dtype=dtype, device="cpu", pin_memory=is_pinned) for _ in range(2)
            ]
        self._slots.reverse()
        return self._slots[0]

    def wait_for(self, event: DeviceEvent, order: int) -> Seconds:
        """Wait until a batch is done, and return when it was.

        A wait ends as the batch does, by our clock. Of a batch that was done before we asked,
        the GPU tells how long before or after an event of which we know it; clocks differ,
        so that one is at most ANCHOR_S old.

        Args:
            event: behind the batch.
            order: of the event among those that were recorded.
        """
        if not event.query():
            return self._know(event, order).at
        anchor = self._anchor
        if anchor is None or self.now() - anchor.at > ANCHOR_S:
            anchor = self._know(*self._record())
        if order > anchor.order:
            at = anchor.at + anchor.event.elapsed_time(event) / 1e3
        else:
            at = anchor.at - event.elapsed_time(anchor.event) / 1e3
        return min(at, self.now())

    def _record(self) -> tuple[DeviceEvent, int]:
        event = self.new_event()
        event.record()
        self._recorded += 1
        return event, self._recorded

    def _know(self, event: DeviceEvent, order: int) -> _Anchor:
        """Wait for an event; it is the anchor from now on."""
        with self.waits():
            event.synchronize()
            at = self.now()  # leaving may wait for a sample
        self._anchor = _Anchor(event, order, at)
        return self._anchor


def _is_on_current_gpu(loss: torch.Tensor) -> bool:
    """Whether an event of this thread's stream comes behind what was computed there."""
    return loss.is_cuda and loss.device.index == torch.cuda.current_device()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
