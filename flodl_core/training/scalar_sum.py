"""A sum and a count of what was noted under one name, on the host or where it lies.

What it is: the pair behind a name of `ctx.scalar`. Numbers on a GPU are added up there and
read when the epoch is reported, since whoever reads a number off a GPU waits until the GPU
has come to it.
What it is not: the cohort's mean, which the coordinator makes of all ranks' pairs.
Who drives it: `scalars` notes, `share_totals` adds up by epoch and reads.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class ScalarSum:
    """What was noted under one name.

    Attributes:
        total: of the finite values on the host.
        count: of the things that `total` is a sum of.
        on_device: total and count of the values on a GPU, f64[2], there; None if there are none.
    """

    total: float = 0.0
    count: float = 0.0
    on_device: Optional["torch.Tensor"] = None

    def add(self, other: "ScalarSum") -> None:
        """Add what was noted elsewhere under the same name; waits for nothing."""
        self.total += other.total
        self.count += other.count
        if other.on_device is not None:
            self.add_on_device(other.on_device)

    def add_on_device(self, pair: "torch.Tensor") -> None:
        """Add total and count, f64[2], where they lie."""
        self.on_device = pair if self.on_device is None else self.on_device + pair

    def read(self) -> tuple[float, float]:
        """Return total and count; waits for the GPU if a value lies there."""
        if self.on_device is None:
            return self.total, self.count
        total, count = self.on_device.tolist()
        return self.total + total, self.count + count
