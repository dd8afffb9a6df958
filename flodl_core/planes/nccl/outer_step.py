"""An outer optimizer on NCCL: every rank steps the average by itself, and comes to the same bits.

```
gradient = previous − average;  velocity ← μ·velocity + gradient
parameters, previous ← previous − lr·velocity            (SlowMo)
                       previous − lr·(μ·velocity + gradient)   (Nesterov)
```

The formulas and their order are those of `reduce.outer`, in f32 and without fused
multiply-adds, on memory that is the same on all ranks: so is what they come to. A step
that is not finite anywhere is taken back as a whole: the average stands, and the velocity
begins again at 0. Nothing is changed before the cycle is completed.

Memory: `previous` and `velocity`, each as large as the parameters. The kept buffer cannot
be `previous` too: the average lands in it, and a death inside PARAM would leave half of each.

On a GPU two launches of one kernel do it (look, then write); without Triton torch's
operations do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from flodl_core.planes.nccl.fused import SUMS, pieces_of, spread_of, square_sum
from flodl_core.reduce.buckets import Run
from flodl_core.reduce.outer import NesterovMomentum, OuterMomentum

_BLOCK: Final = 2048
_WARPS: Final = 8
_PROGRAMS: Final = 1056


@dataclass(slots=True)
class OuterMemory:
    """What an outer optimizer keeps on a rank, the same on all of them.

    Attributes:
        previous: the last committed parameters, flat, f32.
        velocity: as long; 0 at the start.
        steps_next: whether the next average is stepped; the first one of a run is not.
    """

    previous: torch.Tensor
    velocity: torch.Tensor
    steps_next: bool = False


class OuterAdopter:
    """Adopts stepped averages; it belongs to one thread and one device.

    Args:
        rule: with its numbers.
        device: of the parameters.
    """

    def __init__(self, rule: OuterMomentum, device: torch.device) -> None:
        self._device = device
        self._lr, self._momentum = float(np.float32(rule.lr)), float(np.float32(rule.momentum))
        self._looks_ahead = isinstance(rule, NesterovMomentum)
        self._kernel: Callable[..., None] | None = None
        self.why_not = ""
        if device.type == "cuda":
            try:
                self._kernel = self._build_kernel()
            except Exception as error:  # whatever a compiler raises, torch's operations do it too
                self.why_not = f"{type(error).__name__}: {error}"

    def adopt(
        self,
        params: torch.Tensor,
        average: torch.Tensor,
        memory: OuterMemory,
        *,
        spans: Sequence[Run],
        sums: torch.Tensor,
    ) -> None:
        """Enqueue the overwriting of the spans of `params` with the stepped average.

        Args:
            params: the parameter region; on return it holds what is adopted.
            average: as long; only read, unless it is `params` itself.
            memory: of this rank; it is at the new commit afterwards.
            spans: the runs that took part.
            sums: `SUMS` numbers, f64; overwritten.
        """
        sums.zero_()
        if self._kernel is not None:
            self._kernel(params, average, memory, spans, sums)
        else:
            self._adopt_in_pieces(params, average, memory, spans=spans, sums=sums)
        memory.steps_next = True

    def _adopt_in_pieces(
        self,
        params: torch.Tensor,
        average: torch.Tensor,
        memory: OuterMemory,
        *,
        spans: Sequence[Run],
        sums: torch.Tensor,
    ) -> None:
        pieces = pieces_of(spans)
        spread = torch.zeros((), dtype=torch.float64, device=self._device)
        for piece in pieces:
            stepped, after = self._step(average[piece], memory, piece)
            spread += spread_of(stepped) + spread_of(after)
        is_faulty = ~torch.isfinite(spread)
        sums[3] = is_faulty
        for piece in pieces:
            mean, pre = average[piece], params[piece]
            stepped, after = self._step(mean, memory, piece)
            stepped = torch.where(is_faulty, mean, stepped)
            sums[0] += square_sum(pre)
            sums[1] += square_sum(stepped)
            sums[2] += square_sum(pre - stepped)
            pre.copy_(stepped)
            memory.previous[piece] = stepped
            memory.velocity[piece] = torch.where(is_faulty, torch.zeros_like(after), after)

    def _step(
        self, mean: torch.Tensor, memory: OuterMemory, piece: slice
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what an average becomes, and the velocity; every operation rounds by itself."""
        previous = memory.previous[piece]
        gradient = previous - mean
        after = (memory.velocity[piece] * self._momentum).add_(gradient)
        if self._looks_ahead:
            descent = (after * self._momentum).add_(gradient).mul_(self._lr)
        else:
            descent = after * self._lr
        return previous - descent, after

    def _build_kernel(self) -> Callable[..., None]:
        """Compile the kernel, and see that it comes to the bits of torch's operations.

        Raises:
            Exception: Triton is not there, cannot compile here, or rounds otherwise.
        """
        import triton  # type: ignore[import-not-found,unused-ignore]

        from flodl_core.planes.nccl.outer_kernel import outer_kernel

        partial = torch.empty(3 * _PROGRAMS, dtype=torch.float64, device=self._device)

        def launch(place: tuple[torch.Tensor, ...], fault: torch.Tensor, *, looks: bool) -> int:
            count = place[0].numel()
            programs = min(triton.cdiv(count, _BLOCK), _PROGRAMS)
            outer_kernel[(programs,)](
                *place,
                partial,
                fault,
                count,
                self._lr,
                self._momentum,
                LOOKS_AHEAD=self._looks_ahead,
                LOOKS_ONLY=looks,
                BLOCK=_BLOCK,
                PROGRAMS=_PROGRAMS,
                num_warps=_WARPS,
                enable_fp_fusion=False,
            )
            return int(programs)

        def run(
            params: torch.Tensor,
            average: torch.Tensor,
            memory: OuterMemory,
            spans: Sequence[Run],
            sums: torch.Tensor,
        ) -> None:
            regions = (params, average, memory.previous, memory.velocity)
            places = [
                tuple(region[offset : offset + length] for region in regions)
                for offset, length in spans
            ]
            for place in places:
                launch(place, sums[3:], looks=True)
            for place in places:
                programs = launch(place, sums[3:], looks=False)
                sums[:3] += partial.view(3, _PROGRAMS)[:, :programs].sum(dim=1)

        self._try(run)
        return run

    def _try(self, run: Callable[..., None]) -> None:
        """Step a few odd values both ways."""
        found: list[Any] = []
        spans = (Run(0, 997),)
        for step in (run, None):
            generator = torch.Generator(self._device).manual_seed(1)
            params, average, previous, velocity = torch.randn(
                (4, 997), device=self._device, generator=generator
            ).unbind()
            memory = OuterMemory(previous, velocity)
            sums = torch.zeros(SUMS, dtype=torch.float64, device=self._device)
            if step is None:
                self._adopt_in_pieces(params, average, memory, spans=spans, sums=sums)
            else:
                step(params, average, memory, spans, sums)
            found.append((params, memory.velocity, sums))
        (ours, our_velocity, our_sums), (theirs, their_velocity, their_sums) = found
        if not (torch.equal(ours, theirs) and torch.equal(our_velocity, their_velocity)):
            raise RuntimeError("the kernel rounds otherwise than torch's operations")
        if not torch.allclose(our_sums, their_sums, rtol=1e-6):
            raise RuntimeError(f"the kernel's sums are {our_sums.tolist()}")
