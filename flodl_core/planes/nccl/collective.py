"""What the NCCL plane asks of a library of collectives: one small protocol.

```
fabric.new_uid() ─▶ 128 bytes, passed on by the coordinator
fabric.join(uid, place, size) ─▶ Collective: IN_PROGRESS ─▶ READY | FAILED
collective.sum_scaled(…); fabric.mark() ─▶ Mark: is_done()
collective.abort()                                        from another thread
```

`planes.nccl.device` has it of NVIDIA's library, `planes.nccl.loopback` of sockets on one
machine without a GPU; both pass one contract suite. Nothing here blocks: whoever waits
polls. A peer that died is silence in both: only `abort` ends a collective with it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol, TypeAlias

import torch

from flodl_core.errors import FlodlError
from flodl_core.planes.segment import F64

UID_BYTES = 128

Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""What is sent and where the result goes: flat, of one dtype and length; they may be one."""


class CommState(StrEnum):
    """How a communicator, and all that was enqueued on it, stands."""

    IN_PROGRESS = "in_progress"
    READY = "ready"
    FAILED = "failed"


class CollectiveError(FlodlError):
    """A collective library refused, or a communicator failed."""


class Collective(Protocol):
    """One communicator; every member calls the same methods in the same order."""

    def state(self) -> CommState:
        """Return how it stands; never blocks."""

    def sum_scaled(self, pairs: Sequence[Pair], factor: float) -> None:
        """Enqueue target = Σ over members of their factor · source, in one group."""

    def sum_plain(self, values: torch.Tensor) -> None:
        """Enqueue values = Σ over members of values, in place."""

    def broadcast(self, values: torch.Tensor, root: int) -> None:
        """Enqueue values = those of the member at place `root`, in place."""

    def give_up(self) -> None:
        """Have a call that still waits for the library raise soon; from any thread, at once."""

    def abort(self) -> None:
        """End everything that is enqueued and give the resources back; while no call is on."""


class Mark(Protocol):
    """A point in the order of what a fabric was given."""

    def is_done(self) -> bool:
        """Return whether all that was enqueued before it has ended, or was aborted."""


class Mirror(Protocol):
    """A few f64 numbers that go to the device and come back."""

    @property
    def sent(self) -> F64:
        """What `send` takes; it stays as it is until a later mark is done."""

    @property
    def fetched(self) -> F64:
        """What `fetch` brought, once a later mark is done."""

    @property
    def device(self) -> torch.Tensor:
        """The numbers on the device."""

    def send(self) -> None:
        """Enqueue the way to the device."""

    def fetch(self) -> None:
        """Enqueue the way back."""


class Fabric(Protocol):
    """Makes communicators for one rank's device, and orders them with its training."""

    @property
    def device(self) -> torch.device:
        """Where the tensors lie."""

    @property
    def why_not_recorded(self) -> str:
        """Why repeated work is launched piece by piece; empty if it is not."""

    def bind(self) -> None:
        """Make the device the calling thread's own; every thread that uses it does so once."""

    def new_uid(self) -> bytes:
        """Return the 128 bytes by which the members of one communicator meet."""

    def join(self, uid: bytes, *, place: int, size: int) -> Collective:
        """Begin to form a communicator; it is usable once its state is READY.

        Args:
            uid: as its maker's `new_uid` returned it.
            place: of this member, from 0.
            size: members.
        """

    def begin(self, *, is_behind: bool = False) -> None:
        """Enqueue everything behind training from here on, where collectives are enqueued.

        Args:
            is_behind: nothing was enqueued for training since the last `end`.
        """

    def end(self) -> None:
        """Enqueue everything where training is from here on, behind what was enqueued so far."""

    def syncing(self) -> AbstractContextManager[None]:
        """Begin, and end."""

    def repeated(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return what enqueues a work that is always the same, as fast as the device can.

        The work neither waits nor looks at values, and its tensors are always the same ones.
        """

    def mark(self) -> Mark:
        """Return a mark behind all that was enqueued so far; a few of the newest are good."""

    def mirror(self, count: int) -> Mirror:
        """Return that many numbers, 0 on both sides."""


class LoneCollective:
    """A communicator of one: every result is what was sent."""

    def state(self) -> CommState:
        """Return READY."""
        return CommState.READY

    def sum_scaled(self, pairs: Sequence[Pair], factor: float) -> None:
        """Scale each source into its target."""
        for source, target in pairs:
            torch.mul(source, factor, out=target)

    def sum_plain(self, values: torch.Tensor) -> None:
        """Leave the values as they are."""

    def broadcast(self, values: torch.Tensor, root: int) -> None:
        """Leave the values as they are."""

    def give_up(self) -> None:
        """Do nothing: nothing waits for a peer."""

    def abort(self) -> None:
        """Do nothing: nothing waits for a peer."""
