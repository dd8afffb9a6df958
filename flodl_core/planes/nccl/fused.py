"""What is done to whole regions on the device: a look for non-finite values, and adoption.

```
look     sick ← 0, or not finite where a value is not
adopt    d² += (p − k)², k² += k², p² += p²; p ← k
```

On a GPU each is one kernel, written in Triton, which torch brings along: adoption reads
both regions and writes one, where torch's own operations pass over them six times. Without
Triton, or a compiler for it, and on a CPU, torch's operations do the same in pieces that
stay in a cache. Nothing here waits: results are numbers on the device.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch

from flodl_core.reduce.buckets import Run

SUMS: Final = 4
"""Σ pre², Σ post², Σ (pre − post)², and whether an outer step was taken back."""

PIECE_VALUES: Final = 1 << 22
"""Values of a piece: 16 MiB, of which three fit the cache of a large GPU."""

_LOOK_BLOCK: Final = 4096
_ADOPT_BLOCK: Final = 1024
"""0.356 ms for 124 M parameters on an H200, 4.2 TB/s; 0.391 with blocks of 4096."""
_WARPS: Final = 8
_PROGRAMS: Final = 528
"""Four for each multiprocessor of a large GPU."""


class Adopter:
    """Looks at regions and adopts consensus after consensus; of one thread and one device.

    Attributes:
        why_not: why no kernel does it on a GPU; empty if one does, or there is no GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._kernels: _Kernels | None = None
        self.why_not = ""
        if device.type == "cuda":
            try:
                self._kernels = _Kernels(device)
            except Exception as error:  # whatever a compiler raises, torch's operations do it too
                self.why_not = f"{type(error).__name__}: {error}"

    @property
    def is_fused(self) -> bool:
        """Whether one kernel does it."""
        return self._kernels is not None

    def look(self, regions: Sequence[torch.Tensor], sick: torch.Tensor) -> None:
        """Enqueue a look at regions.

        Args:
            regions: flat, f32.
            sick: one f64 number; 0 afterwards, or not finite where a value is not.
        """
        sick.zero_()
        for values in regions:
            if self._kernels is not None and values.numel():
                self._kernels.look(values, sick)
            else:
                sick.add_(spread_of(values), alpha=0.0)

    def adopt(
        self,
        params: torch.Tensor,
        consensus: torch.Tensor,
        spans: Sequence[Run],
        *,
        sums: torch.Tensor,
    ) -> None:
        """Enqueue the overwriting of the spans of `params` with the consensus.

        Args:
            params: the parameter region, f32; it holds the consensus afterwards.
            consensus: of the same length, f32; only read.
            spans: the runs that took part.
            sums: `SUMS` numbers, f64; the first three are overwritten.
        """
        if self._kernels is not None:
            self._kernels.adopt(params, consensus, spans, sums)
            return
        sums.zero_()
        for piece in pieces_of(spans):
            pre, post = params[piece], consensus[piece]
            sums[0] += square_sum(pre)
            sums[1] += square_sum(post)
            pre.sub_(post)
            sums[2] += square_sum(pre)
            pre.copy_(post)


def pieces_of(spans: Sequence[Run]) -> list[slice]:
    """Return the spans cut into pieces of at most `PIECE_VALUES`, in order."""
    return [
        slice(start, min(start + PIECE_VALUES, offset + length))
        for offset, length in spans
        for start in range(offset, offset + length, PIECE_VALUES)
    ]


def spread_of(values: torch.Tensor) -> torch.Tensor:
    """Return a number that is finite if all values are, f64 on their device; it reads once."""
    if not values.numel():
        return torch.zeros((), dtype=torch.float64, device=values.device)
    smallest, largest = torch.aminmax(values)
    return largest.double() - smallest


def square_sum(values: torch.Tensor) -> torch.Tensor:
    """Return Σ x² of a flat f32 tensor, as f64 on its device; not finite if a value is not."""
    if not values.numel():
        return torch.zeros((), dtype=torch.float64, device=values.device)
    norm: torch.Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
    return norm * norm


class _Kernels:
    """The kernels, compiled for one device and tried on a few values.

    Raises:
        Exception: Triton is not there, or cannot compile here.
    """

    def __init__(self, device: torch.device) -> None:
        from flodl_core.planes.nccl import adopt_kernel

        self._device = device
        self._look: Any = adopt_kernel.finite_kernel
        self._adopt: Any = adopt_kernel.adopt_kernel
        self._partial = torch.zeros((1, 3, _PROGRAMS), dtype=torch.float64, device=device)
        self._try()

    def look(self, values: torch.Tensor, sick: torch.Tensor) -> None:
        self._look[(_PROGRAMS,)](values, sick, values.numel(), BLOCK=_LOOK_BLOCK, num_warps=_WARPS)

    def adopt(
        self,
        params: torch.Tensor,
        consensus: torch.Tensor,
        spans: Sequence[Run],
        sums: torch.Tensor,
    ) -> None:
        if len(spans) > len(self._partial):
            shape = (len(spans), 3, _PROGRAMS)
            self._partial = torch.zeros(shape, dtype=torch.float64, device=self._device)
        for index, (offset, length) in enumerate(spans):
            self._adopt[(_PROGRAMS,)](
                params[offset : offset + length],
                consensus[offset : offset + length],
                self._partial[index],
                length,
                BLOCK=_ADOPT_BLOCK,
                PROGRAMS=_PROGRAMS,
                num_warps=_WARPS,
            )
        torch.sum(self._partial[: len(spans)], dim=(0, 2), out=sums[:3])

    def _try(self) -> None:
        mine = torch.ones(8, dtype=torch.float32, device=self._device)
        theirs = torch.full((8,), 2.0, dtype=torch.float32, device=self._device)
        sums = torch.zeros(SUMS, dtype=torch.float64, device=self._device)
        sick = torch.zeros((), dtype=torch.float64, device=self._device)
        self.look(theirs, sick)
        well = float(sick)
        theirs[5] = float("inf")
        self.look(theirs, sick)
        theirs[5] = 2.0
        self.adopt(mine, theirs, (Run(0, 8),), sums)
        found = [well, *sums.tolist(), *mine.tolist()]
        if found != [0.0, 8.0, 32.0, 8.0, 0.0, *([2.0] * 8)] or float(sick) == 0.0:
            raise RuntimeError(f"the kernels give {found} and {float(sick)}")
