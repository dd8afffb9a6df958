"""What a completed cycle does to a rank's own values.

```
parameters ← the kept buffer, or an outer step from it; their distance is summed on the way
buffers    ← their kept buffer
```

Everything is enqueued; `take` then waits for the sums, which are four numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from flodl_core.planes.nccl.collective import Fabric
from flodl_core.planes.nccl.fused import SUMS, Adopter
from flodl_core.planes.nccl.outer_step import OuterAdopter
from flodl_core.planes.nccl.parts import RankRegions
from flodl_core.planes.nccl.waiting import looks
from flodl_core.reduce.buckets import Run
from flodl_core.reduce.outer import OuterAvg, OuterRule


@dataclass(frozen=True, slots=True)
class Adopted:
    """What was adopted.

    Attributes:
        sums: Σ pre², Σ post² and Σ (pre − post)² of the parameters; None in place, where
            nothing is left to compare with.
        took_buffers: whether there were buffers.
        is_unstepped: whether an outer step was not finite, and was taken back.
    """

    sums: tuple[float, float, float] | None
    took_buffers: bool
    is_unstepped: bool


class Adoption:
    """Adopts for one rank.

    Args:
        fabric: of its device.
        regions: of its model.
        outer: what is made of an average; one with a velocity needs `regions.outer`.
    """

    def __init__(self, fabric: Fabric, regions: RankRegions, outer: OuterRule) -> None:
        self._fabric, self._regions = fabric, regions
        self._adopter = Adopter(fabric.device)
        self._stepper: OuterAdopter | None = None
        if not isinstance(outer, OuterAvg):
            self._stepper = OuterAdopter(outer, fabric.device)
        self._sums = fabric.mirror(SUMS)
        self._spans: tuple[Run, ...] = ()
        self._overwrite: Callable[[], None] = fabric.repeated(self._take_average)

    @property
    def why_not_fused(self) -> str:
        """Why it takes more than one pass on a GPU; empty if it does not."""
        return self._adopter.why_not or (self._stepper.why_not if self._stepper else "")

    def look(self, health: torch.Tensor) -> None:
        """Enqueue a look at the rank's values.

        Args:
            health: one f64 number; 0 afterwards, or NaN where a value is not finite.
        """
        self._adopter.look((self._regions.params, self._regions.buffers), health)

    def take(self, spans: tuple[Run, ...]) -> Adopted:
        """Adopt what is kept.

        Args:
            spans: the parameters that took part.
        """
        regions, memory = self._regions, self._regions.outer
        is_stepped = False
        if self._stepper is not None and memory is not None and memory.steps_next:
            sums = self._sums.device
            self._stepper.adopt(regions.params, regions.kept_params, memory, spans=spans, sums=sums)
            self._sums.fetch()
            is_stepped = True
        else:
            if not regions.in_place:
                self._take_spans(spans)
            if memory is not None:
                for offset, length in spans:
                    run = slice(offset, offset + length)
                    memory.previous[run] = regions.params[run]
                memory.steps_next = True
        took_buffers = self.take_buffers()
        if regions.in_place and not is_stepped:
            return Adopted(None, took_buffers, is_unstepped=False)
        pre, post, apart, fault = self._read()
        return Adopted(
            None if regions.in_place else (pre, post, apart),
            took_buffers,
            is_unstepped=bool(fault),
        )

    def take_buffers(self) -> bool:
        """Enqueue the adoption of the buffers; return whether there are any."""
        has_buffers = self._regions.buffers.numel() > 0
        if has_buffers:
            self._regions.buffers.copy_(self._regions.kept_buffers)
        return has_buffers

    def _take_spans(self, spans: tuple[Run, ...]) -> None:
        if spans != self._spans:
            self._spans = spans
            self._overwrite = self._fabric.repeated(self._take_average)
        self._overwrite()

    def _take_average(self) -> None:
        regions, sums = self._regions, self._sums.device
        self._adopter.adopt(regions.params, regions.kept_params, self._spans, sums=sums)
        self._sums.fetch()

    def _read(self) -> list[float]:
        mark = self._fabric.mark()
        for _ in looks():
            if mark.is_done():
                break
        return [float(one) for one in self._sums.fetched]
