"""Where each parameter segment lives in a rank's memory.

A home is a tensor in one contiguous buffer per dtype and device. A float32 segment in C
order has its home in the parameter region. On a CPU that is the slot's own where nobody
trains while it is read, so that a snapshot of it costs nothing; on a GPU it is the rank's,
and moves as a whole. Every other segment is copied to and from its place. A dense tensor
of other strides keeps them; one with gaps is laid in C order.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from flodl_core.messages.job import Segment, View
from flodl_core.training.strides import first_element, is_dense
from flodl_core.training.survey import Cluster, Named
from flodl_core.units import STORAGE_ALIGN_BYTES

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One name of a segment, the object that the module held, and where its values live."""

    name: str
    module: nn.Module
    attribute: str
    original: nn.Parameter | None
    """The Parameter object that the optimizer owns; None where the name is a buffer."""
    view: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PlacedParam:
    """A parameter segment with its memory."""

    segment: Segment
    home: torch.Tensor
    """The whole segment, in the primary's shape, on its device."""
    in_region: bool
    bindings: tuple[Binding, ...]

    @property
    def takes_gradients(self) -> bool:
        """Whether any of its parameters takes gradients, or has one from before it was frozen."""
        return any(
            binding.original is not None
            and (binding.original.requires_grad or binding.original.grad is not None)
            for binding in self.bindings
        )


def place_params(
    clusters: tuple[Cluster, ...], segments: tuple[Segment, ...], region: torch.Tensor
) -> tuple[PlacedParam, ...]:
    """Move every cluster into its home and bind its parameters to it.

    Args:
        clusters: of the model's survey.
        segments: the geometry's, in the same order.
        region: a parameter region; flat f32, on the device of the parameters.
    """
    staged = [cluster for cluster in clusters if not _fits_region(cluster, region.device)]
    blocks = _allocate(staged)
    placed = []
    for cluster, segment in zip(clusters, segments, strict=True):
        fits = _fits_region(cluster, region.device)
        flat, base = (region, segment.offset) if fits else blocks[id(cluster)]
        placed.append(_place(cluster, segment, flat=flat, base=base, in_region=fits))
    return tuple(placed)


def c_view(flat: torch.Tensor, base: int, view: View) -> torch.Tensor:
    """Return a name's view of a segment that lies in C order at `base` of a flat buffer."""
    return flat.as_strided(view.shape, view.strides, base + view.storage_offset)


def _fits_region(cluster: Cluster, device: torch.device) -> bool:
    tensor = cluster.primary.tensor
    return (
        tensor.dtype == torch.float32
        and tensor.device == device
        and (tensor.is_contiguous() or not is_dense(tensor))
    )


def _allocate(clusters: list[Cluster]) -> dict[int, tuple[torch.Tensor, int]]:
    """Return for each cluster its flat buffer and where in it the cluster begins."""
    sizes: dict[tuple[torch.device, torch.dtype], int] = {}
    starts: list[int] = []
    for cluster in clusters:
        tensor = cluster.primary.tensor
        key = (tensor.device, tensor.dtype)
        align = STORAGE_ALIGN_BYTES // tensor.element_size()
        starts.append(sizes.get(key, 0))
        sizes[key] = starts[-1] + -(-tensor.numel() // align) * align
    flats = {key: torch.zeros(size, dtype=key[1], device=key[0]) for key, size in sizes.items()}
    return {
        id(cluster): (flats[cluster.primary.tensor.device, cluster.primary.tensor.dtype], start)
        for cluster, start in zip(clusters, starts, strict=True)
    }


def _place(
    cluster: Cluster, segment: Segment, *, flat: torch.Tensor, base: int, in_region: bool
) -> PlacedParam:
    primary = cluster.primary.tensor
    keeps_strides = is_dense(primary) and not primary.is_contiguous()
    views: list[torch.Tensor] = []
    for member, view in zip(cluster.members, segment.views, strict=True):
        if keeps_strides:
            offset = base + first_element(member.tensor) - first_element(primary)
            views.append(flat.as_strided(member.tensor.shape, member.tensor.stride(), offset))
        else:
            views.append(c_view(flat, base, view))
    home = views[cluster.members.index(cluster.primary)]
    with torch.no_grad():
        home.copy_(primary.detach())
    bindings = tuple(
        _bind(member, view) for member, view in zip(cluster.members, views, strict=True)
    )
    return PlacedParam(segment=segment, home=home, in_region=in_region, bindings=bindings)


def _bind(member: Named, view: torch.Tensor) -> Binding:
    original = member.tensor if isinstance(member.tensor, nn.Parameter) else None
    if original is not None:
        original.data = view
    else:
        member.module._buffers[member.attribute] = view
    return Binding(
        name=member.name,
        module=member.module,
        attribute=member.attribute,
        original=original,
        view=view,
    )
