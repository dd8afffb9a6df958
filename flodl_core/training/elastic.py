"""Adoption of a rank that trained on: it moves towards the consensus instead of becoming it.

Its parameters are blended as `reduce.easgd` says, whatever dtype they have and wherever they
live: on a GPU with the same steps, in pieces. Because such
a rank never holds the consensus itself, it is lent it for an evaluation and gets its own
values back, bit by bit. To be called where no round of a cycle may be running, so that
snapshot and consensus stand still. The training thread drives it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from flodl_core.reduce.buckets import Run
from flodl_core.reduce.easgd import blend
from flodl_core.training.adopt import adopt_buffers, adopt_params, as_torch, is_covered
from flodl_core.training.device_copies import PIECE_VALUES
from flodl_core.training.flat import FlatLayout
from flodl_core.training.placement import F32


def blend_params(
    layout: FlatLayout, consensus: F32, *, snapshot: F32, spans: Sequence[Run], alpha: float
) -> None:
    """Move the active parameter segments towards the consensus.

    Args:
        layout: of the rank's model.
        consensus: the committed parameter region; it is only read.
        snapshot: the slot's parameter region, as this cycle averaged it; it is only read.
        spans: the runs that took part, as the params round covered them.
        alpha: above 0 and at most 1.
    """
    if layout.copies is None:
        blend(layout.memory, snapshot, consensus, spans, alpha=alpha)
    else:
        blend_region(layout.region, snapshot, consensus, spans, alpha=alpha)
    with torch.no_grad():
        for placed in layout.params:
            segment = placed.segment
            if placed.in_region or not is_covered(segment, spans):
                continue
            part = slice(segment.offset, segment.offset + segment.numel)
            plain = placed.home.detach().resolve_conj().resolve_neg()
            values = torch.view_as_real(plain) if plain.is_complex() else plain
            own = values.to(torch.float32, copy=True).reshape(-1).cpu().numpy()
            everything = [Run(0, segment.numel)]
            blend(own, snapshot[part], consensus[part], everything, alpha=alpha)
            placed.home.copy_(as_torch(own, segment).view(segment.shape))


def blend_region(
    region: torch.Tensor, snapshot: F32, consensus: F32, spans: Sequence[Run], *, alpha: float
) -> None:
    """Blend a parameter region on its device, with the bits that it would get in host memory.

    Args:
        region: the rank's values now, flat f32; changed over the spans.
        snapshot: in host memory, as long; only read.
        consensus: likewise.
        spans: the runs that took part.
        alpha: above 0 and at most 1.
    """
    stay, move = float(np.float32(1.0 - alpha)), float(np.float32(alpha))

    def on_device(values: F32) -> torch.Tensor:
        return torch.from_numpy(np.array(values)).to(region.device)

    with torch.no_grad():
        for offset, length in spans:
            for start in range(offset, offset + length, PIECE_VALUES):
                piece = slice(start, min(start + PIECE_VALUES, offset + length))
                before = on_device(snapshot[piece])
                meeting = on_device(consensus[piece]).mul_(move).add_(before.mul(stay))
                region[piece].sub_(before).add_(meeting)


@contextmanager
def lent_consensus(
    layout: FlatLayout, params: F32, buffers: F32, *, spans: Sequence[Run]
) -> Iterator[None]:
    """Let the model be the consensus for a while.

    It takes the memory of one more model meanwhile.

    Args:
        layout: of the rank's model; on return everything is as it was.
        params: the committed parameter region; it is only read.
        buffers: the committed buffer region; it is only read.
        spans: the runs of the parameter region that were averaged last.
    """
    own = layout.region.clone()
    outside = [
        (placed.home, placed.home.detach().clone())
        for placed in layout.params
        if not placed.in_region
    ]
    held = [
        (current, current.detach().clone())
        for buffer in layout.buffers
        for current in (name.current() for name in buffer.names)
    ]
    adopt_params(layout, params, spans=spans)
    adopt_buffers(layout, buffers)
    try:
        yield
    finally:
        with torch.no_grad():
            layout.region.copy_(own)
            for home, values in (*outside, *held):
                home.copy_(values)
