"""Adoption: the consensus of a committed cycle written over a rank's own state.

Active parameter segments and all floating-point buffers are overwritten under
every name; what did not take part keeps its values, and integer and bool buffers
are never touched. To be called after the last RoundEnd of the cycle only.
"""

from collections.abc import Sequence

import numpy as np
import torch

from flodl_core.messages.job import Segment
from flodl_core.reduce.buckets import Run, covers_region
from flodl_core.reduce.divergence import Divergence, adopt_and_compare, divergence_triple
from flodl_core.training.flat import FlatLayout
from flodl_core.training.placement import F32
from flodl_core.training.snapshot import is_live


def adopt_params(layout: FlatLayout, consensus: F32, *, spans: Sequence[Run]) -> None:
    """Overwrite the active parameter segments.

    Args:
        layout: of the rank's model.
        consensus: the committed parameter region; it is only read.
        spans: the runs that took part, as the params round covered them.
    """
    if layout.copies is not None:
        layout.copies.upload(consensus, layout.region, spans)
    else:
        for offset, length in spans:
            layout.memory[offset : offset + length] = consensus[offset : offset + length]
    _adopt_outside(layout, consensus, spans)


def adopt_and_measure(
    layout: FlatLayout, consensus: F32, *, snapshot: F32, spans: Sequence[Run], norm: float
) -> Divergence:
    """Overwrite the active parameter segments; return how far the snapshot was from them.

    Args:
        layout: of the rank's model.
        consensus: the committed parameter region; it is only read.
        snapshot: the slot's parameter region, which may be where the model lives.
        spans: the runs that took part, as the params round covered them.
        norm: of the snapshot's whole parameter region.
    """
    if is_live(layout, snapshot):
        known = norm if covers_region(spans, snapshot.size) else None
        divergence = adopt_and_compare(snapshot, consensus, spans, pre_norm=known)
        _adopt_outside(layout, consensus, spans)
    else:
        divergence = divergence_triple(snapshot, consensus, spans)
        adopt_params(layout, consensus, spans=spans)
    return divergence


def _adopt_outside(layout: FlatLayout, consensus: F32, spans: Sequence[Run]) -> None:
    """Overwrite the segments that do not live in the parameter region."""
    with torch.no_grad():
        for placed in layout.params:
            if not placed.in_region and is_covered(placed.segment, spans):
                placed.home.copy_(
                    segment_values(consensus, placed.segment).view(placed.segment.shape)
                )


def adopt_buffers(layout: FlatLayout, consensus: F32) -> None:
    """Overwrite every floating-point buffer, under every name.

    Args:
        layout: of the rank's model.
        consensus: the committed buffer region; it is only read.

    Raises:
        SchemaDriftError: a buffer is gone, or has another shape or dtype.
    """
    with torch.no_grad():
        for placed in layout.buffers:
            values = segment_values(consensus, placed.segment)
            for name in placed.names:
                name.current().copy_(
                    values.as_strided(name.view.shape, name.view.strides, name.view.storage_offset)
                )


def is_covered(segment: Segment, spans: Sequence[Run]) -> bool:
    """Return whether a segment lies in one of these runs."""
    return segment.numel > 0 and any(
        offset <= segment.offset < offset + length for offset, length in spans
    )


def segment_values(region: F32, segment: Segment) -> torch.Tensor:
    """Return a copy of a segment as torch holds it: flat, complex where it is."""
    return as_torch(np.array(region[segment.offset : segment.offset + segment.numel]), segment)


def copied_segment(region: torch.Tensor, segment: Segment) -> torch.Tensor:
    """Return the same of a region that may lie on a device."""
    values = region[segment.offset : segment.offset + segment.numel].clone()
    return _complex_where_it_is(values, segment)


def as_torch(flat: F32, segment: Segment) -> torch.Tensor:
    """Return the values of a segment as torch holds them: flat, complex where it is."""
    return _complex_where_it_is(torch.from_numpy(flat), segment)


def _complex_where_it_is(values: torch.Tensor, segment: Segment) -> torch.Tensor:
    if segment.dtype.startswith("complex"):
        return torch.view_as_complex(values.view(-1, 2))
    return values
