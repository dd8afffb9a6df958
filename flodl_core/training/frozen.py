"""Frozen parameters that the step itself changes, such as the teacher of a moving average.

No gradient tells of them, so their values do: each snapshot compares what nobody trained
with what was adopted last, and a segment that differs takes part from that average on, for
good. Every value is looked at: a moving average may begin late, and a sample could miss it.
On a CPU that costs as much again as the snapshot's norm of the same values; on a GPU the
answers are fetched together, with one wait.
"""

from typing import Final

import numpy as np
import torch

from flodl_core.training.flat import FlatLayout
from flodl_core.training.placement import F32

_PIECE_VALUES: Final = 1 << 17
"""Compared at once on a CPU; it stays in the cache."""

_SUM_VALUES: Final = 1 << 22
"""Summed at once where nothing is kept to compare with."""


def flag_changed(layout: FlatLayout, values: F32, adopted: F32) -> None:
    """Have every frozen segment averaged whose values differ from the adopted ones.

    Args:
        layout: of the rank's model.
        values: the parameter region as the snapshot has it; only read.
        adopted: the parameter region of the last consensus; only read.
    """
    changed = []
    for index in layout.untrained():
        segment = layout.params[index].segment
        part = slice(segment.offset, segment.offset + segment.numel)
        if not _same_bits(values[part], adopted[part]):
            changed.append(index)
    layout.note_changed(changed)


class FrozenWatch:
    """The same for a rank whose region lies on its device and is averaged there.

    Args:
        layout: of the rank's model.
        region: its parameter region, with all segments laid out; flat f32.
        adopted: holds what was adopted last, as long; None where nothing is kept. Then a sum
            of each segment is, which tells any change of one value, and misses one of
            several with a chance of 2**-64.
    """

    def __init__(
        self, layout: FlatLayout, region: torch.Tensor, adopted: torch.Tensor | None
    ) -> None:
        self._layout = layout
        self._region = region
        self._adopted = adopted
        self._weights = region.new_zeros(0, dtype=torch.int64)
        self._sums: dict[int, torch.Tensor] = {}
        self._looked: tuple[tuple[int, ...], torch.Tensor] | None = None

    def begin(self) -> None:
        """The region holds the initial consensus."""
        if self._adopted is None:
            frozen = self._layout.untrained()
            sizes = [self._layout.params[index].segment.numel for index in frozen]
            self._weights = _odd_weights(max(sizes, default=0)).to(self._region.device)
            self._sums = {index: self._sum(index) for index in frozen}

    def look(self) -> None:
        """Enqueue the comparison of what nobody trained."""
        frozen = self._layout.untrained()
        self._looked = None
        if frozen:
            self._looked = frozen, torch.stack([self._differs(index) for index in frozen])

    def flag(self) -> None:
        """Wait for what `look` found, and flag it."""
        if self._looked is None:
            return
        (frozen, differs), self._looked = self._looked, None
        self._layout.note_changed(
            index for index, found in zip(frozen, differs.tolist(), strict=True) if found
        )

    def _differs(self, index: int) -> torch.Tensor:
        if self._adopted is None:
            return self._sums[index] != self._sum(index)
        return (self._part(self._region, index) != self._part(self._adopted, index)).any()

    def _part(self, region: torch.Tensor, index: int) -> torch.Tensor:
        segment = self._layout.params[index].segment
        return region[segment.offset : segment.offset + segment.numel].view(torch.int32)

    def _sum(self, index: int) -> torch.Tensor:
        """Return Σ bits · weight modulo 2**64."""
        pieces = torch.split(self._part(self._region, index), _SUM_VALUES)
        return torch.stack([(one * self._weights[: one.numel()]).sum() for one in pieces]).sum()


def _odd_weights(numel: int) -> torch.Tensor:
    """Return weights of chance; an odd one keeps every bit of what it is multiplied with."""
    chance = torch.Generator().manual_seed(0)
    size = (min(numel, _SUM_VALUES),)
    return torch.randint(-(1 << 62), 1 << 62, size, generator=chance, device="cpu") * 2 + 1


def _same_bits(ours: F32, theirs: F32) -> bool:
    mine, other = ours.view(np.int32), theirs.view(np.int32)
    return all(
        np.array_equal(mine[start : start + _PIECE_VALUES], other[start : start + _PIECE_VALUES])
        for start in range(0, mine.size, _PIECE_VALUES)
    )
