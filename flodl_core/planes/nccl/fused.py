"""Adoption and divergence on the device, in one pass over the parameters.

```
d² += (p − k)², k² += k², p² += p²; p ← k
```

On a GPU one kernel does it, written in Triton, which torch brings along: it reads both
regions and writes one, where torch's own operations pass over them six times. Without
Triton, or a compiler for it, and on a CPU, torch's operations do the same in pieces that
stay in a cache.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from flodl_core.reduce.buckets import Run

PIECE_VALUES: Final = 1 << 22
"""Values of a piece: 16 MiB, of which three fit the cache of a large GPU."""

_BLOCK: Final = 1024
_PROGRAMS: Final = 2048


class Adopter:
    """Adopts consensus after consensus; it belongs to one thread and one device.

    Attributes:
        is_fused: whether one kernel does it.
        why_not: why no kernel does it on a GPU; empty if one does, or there is no GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._kernel: Callable[..., None] | None = None
        self.why_not = ""
        if device.type == "cuda":
            try:
                self._kernel = _build_kernel(device)
            except Exception as error:  # whatever a compiler raises, torch's operations do it too
                self.why_not = f"{type(error).__name__}: {error}"

    @property
    def is_fused(self) -> bool:
        """Whether one kernel does it."""
        return self._kernel is not None

    def adopt(
        self, params: torch.Tensor, consensus: torch.Tensor, spans: Sequence[Run]
    ) -> torch.Tensor:
        """Overwrite the spans of `params` with the consensus.

        Args:
            params: the parameter region, f32; on return it holds the consensus.
            consensus: of the same length, f32; only read.
            spans: the runs that took part.

        Returns:
            Σ pre², Σ post² and Σ (pre − post)² over the spans, and 0, f64 on the device.
        """
        sums = torch.zeros(4, dtype=torch.float64, device=self._device)
        for offset, length in spans:
            mine, theirs = params[offset : offset + length], consensus[offset : offset + length]
            if self._kernel is not None:
                self._kernel(mine, theirs, sums)
            else:
                _adopt_in_pieces(mine, theirs, sums)
        return sums


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


def _adopt_in_pieces(mine: torch.Tensor, theirs: torch.Tensor, sums: torch.Tensor) -> None:
    for start in range(0, mine.numel(), PIECE_VALUES):
        pre, post = mine[start : start + PIECE_VALUES], theirs[start : start + PIECE_VALUES]
        sums[0] += square_sum(pre)
        sums[1] += square_sum(post)
        pre.sub_(post)
        sums[2] += square_sum(pre)
        pre.copy_(post)


def _build_kernel(device: torch.device) -> Callable[..., None]:
    """Compile the kernel and try it on a few values.

    Raises:
        Exception: Triton is not there, or cannot compile here.
    """
    import triton  # type: ignore[import-not-found,unused-ignore]

    from flodl_core.planes.nccl.adopt_kernel import adopt_kernel

    partial = torch.empty(3 * _PROGRAMS, dtype=torch.float64, device=device)

    def run(mine: torch.Tensor, theirs: torch.Tensor, sums: torch.Tensor) -> None:
        blocks = triton.cdiv(mine.numel(), _BLOCK)
        programs = min(blocks, _PROGRAMS)
        adopt_kernel[(programs,)](
            mine, theirs, partial, mine.numel(), BLOCK=_BLOCK, PROGRAMS=_PROGRAMS
        )
        sums[:3] += partial.view(3, _PROGRAMS)[:, :programs].sum(dim=1)

    mine, theirs = torch.ones(8, device=device), torch.full((8,), 2.0, device=device)
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    run(mine, theirs, sums)
    found: list[Any] = [*sums.tolist(), *mine.tolist()]
    if found != [8.0, 32.0, 8.0, 0.0, *([2.0] * 8)]:
        raise RuntimeError(f"the kernel gives {found}")
    return run
