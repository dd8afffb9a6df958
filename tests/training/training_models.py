"""Models with every odd tensor that a layout must cope with, and a spare rank's memory."""

import numpy as np
import torch
from torch import nn

from flodl_core.training.flat import FlatLayout
from flodl_core.training.geometry import build_geometry
from flodl_core.training.survey import survey_model


class Odd(nn.Module):
    """One of each: tied, viewed, transposed, scalar, empty, wide, narrow, complex, frozen."""

    def __init__(self, seed=0):
        super().__init__()
        draw = torch.Generator().manual_seed(seed)

        def randn(*shape, **options):
            return torch.randn(*shape, generator=draw, **options)

        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.base = nn.Parameter(randn(6, 4))
        self.rows = nn.Parameter(self.base.data[1:3])
        self.flipped = nn.Parameter(self.base.data.t())
        self.transposed = nn.Parameter(randn(3, 4).t())
        self.scalar = nn.Parameter(randn(()))
        self.empty = nn.Parameter(torch.zeros(0))
        self.wide = nn.Parameter(randn(3, dtype=torch.float64))
        self.narrow = nn.Parameter(randn(3).to(torch.bfloat16))
        self.pairs = nn.Parameter(torch.complex(randn(2, 3), randn(2, 3)))
        self.frozen = nn.Parameter(randn(3), requires_grad=False)
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("counter", torch.tensor(2**53 + 1))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("drift", randn(4, dtype=torch.float64))
        self.register_buffer("spread", randn(1).expand(3))
        self.register_buffer("cache", torch.full((2,), float("-inf")), persistent=False)
        with torch.no_grad():
            for parameter in (self.embedding.weight, *self.conv.parameters()):
                parameter.copy_(randn(*parameter.shape))


def geometry_of(model):
    return build_geometry(survey_model(model))


def laid_out(model, geometry=None):
    """Return (layout, params memory) of a model whose slot is plain memory."""
    geometry = geometry or geometry_of(model)
    memory = np.zeros(geometry.params_numel, np.float32)
    return FlatLayout(model, geometry, params_memory=memory), memory


class MemorySlot:
    """A slot's arrays without shared memory, with the calls that a snapshot makes."""

    def __init__(self, geometry, params=None):
        self.params = np.zeros(geometry.params_numel, np.float32) if params is None else params
        self.buffers = np.zeros(geometry.buffers_numel, np.float32)
        self.flags = []
        self.written = None

    def set_unfrozen(self, flags):
        self.flags = list(flags)

    def write_header(self, header):
        self.written = header


def values_by_name(geometry, region, *, buffers=False):
    """Read a region back by state-dict name, independently of the layout's own code."""
    found = {}
    for segment in geometry.buffers if buffers else geometry.params:
        taken = region[segment.offset : segment.offset + segment.numel]
        if segment.dtype.startswith("complex"):
            taken = taken[0::2] + 1j * taken[1::2]
        for view in segment.views:
            out = np.empty(view.shape, taken.dtype)
            for index in np.ndindex(*view.shape):
                at = view.storage_offset + sum(
                    i * s for i, s in zip(index, view.strides, strict=True)
                )
                out[index] = taken[at]
            found[view.name] = out
    return found
