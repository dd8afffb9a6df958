"""What goes into a cycle on NCCL and what comes out: regions, a claim, an end.

Plain data between the training thread and `cycle.CollectiveCycle`, and the pairs of tensors
that a collective is given. Nothing here waits or decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from flodl_core.ids import Cycle, SyncOutcome
from flodl_core.planes.nccl.collective import Pair
from flodl_core.planes.nccl.outer_step import OuterMemory
from flodl_core.reduce.buckets import Run
from flodl_core.reduce.divergence import Divergence


@dataclass(slots=True)
class RankRegions:
    """What a rank averages, flat and f32 on its device.

    Attributes:
        params: where the parameters live, or are laid for the cycle.
        buffers: likewise the floating-point buffers.
        kept_params: gets the consensus; `params` itself where none is kept.
        kept_buffers: likewise.
        outer: of an outer optimizer; None without one.
    """

    params: torch.Tensor
    buffers: torch.Tensor
    kept_params: torch.Tensor
    kept_buffers: torch.Tensor
    outer: OuterMemory | None = None

    @property
    def in_place(self) -> bool:
        """Whether PARAM changes the parameters while it runs."""
        return self.kept_params is self.params


@dataclass(frozen=True, slots=True, kw_only=True)
class CountClaim:
    """What a rank would contribute if its values are finite."""

    cycle: Cycle
    n: int
    samples: int
    gamma: float
    unfrozen: Sequence[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEnd:
    """How a cycle ended for this rank.

    Attributes:
        spans: the parameters that took part; empty if nothing was adopted.
        divergence: absent where nothing was adopted, or in place of it.
        took_buffers: whether the kept buffers hold new values.
        is_unstepped: whether an outer step was not finite, and the average stands in for it.
    """

    cycle: Cycle
    outcome: SyncOutcome
    spans: tuple[Run, ...] = ()
    divergence: Divergence | None = None
    took_buffers: bool = False
    is_unstepped: bool = False


def pairs_of(
    source: torch.Tensor, target: torch.Tensor, spans: Sequence[Run], *, moves: bool
) -> list[Pair]:
    """Return what is sent and where it goes; whoever brings nothing sends zeros."""
    pairs = []
    for offset, length in spans:
        into = target[offset : offset + length]
        if moves:
            pairs.append((source[offset : offset + length], into))
        else:
            into.zero_()
            pairs.append((into, into))
    return pairs
