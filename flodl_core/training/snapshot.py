"""The snapshot: a rank's state written into its slot, and the verdict on it.

Everything is laid in logical C order, cast to f32, complex numbers as pairs. The
verdict is decided here, once a cycle and before anybody reads the slot: values that
are not finite, or whose weighted sum might leave the f32 wire, make the rank declare
n = 0 and contribute nothing to either round.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from flodl_core.ids import Cycle
from flodl_core.messages.job import Segment
from flodl_core.planes.slot import Slot, SlotHeader
from flodl_core.reduce.mass import gamma_mass, is_representable, mover_mass
from flodl_core.reduce.norms import NORM_ERROR, norm
from flodl_core.training.flat import FlatLayout
from flodl_core.training.frozen import flag_changed
from flodl_core.training.placement import F32

FIX_VALUES: Final = "initialise it, or register a constant mask as bool or with persistent=False"
"""What to do about a tensor that cannot be averaged before anything was trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a rank would contribute if its values are good."""

    cycle: Cycle
    n: int
    """Batches since the last sync whose optimizer step was applied."""
    samples: int
    """Samples drawn since the last sync."""
    gamma: float
    world_size: int
    reference: float | None = None
    """No value of the last consensus is larger; None where the wire does not subtract it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotVerdict:
    """What the snapshot came to."""

    declared: bool
    n: int
    """As contributed: 0 where declared."""
    pre_norm: float
    """‖parameters‖; not finite where a value is not."""
    fault: str | None
    """Which tensor made the rank declare, and why."""
    strays: tuple[str, ...]
    """Names that were put back into the layout, each named once in a run."""


def take_snapshot(
    layout: FlatLayout, slot: Slot, claim: Claim, *, adopted: F32 | None = None
) -> SnapshotVerdict:
    """Write parameters, buffers, flags and header into the slot.

    The slot must not be read by anybody: the previous cycle is over, and Ready of this
    one was not said.

    Args:
        layout: of the rank's model.
        slot: gets everything.
        claim: what the rank would contribute.
        adopted: the parameter region of the last consensus; None before the first.

    Raises:
        SchemaDriftError: the set, shape or dtype of the model's tensors changed.
    """
    strays = layout.gather_strays()
    _write_values(layout, slot)
    if adopted is not None:
        flag_changed(layout, slot.params, adopted)
    slot.set_unfrozen(layout.unfrozen())
    mass_params, mass_buffers = gamma_mass(claim.n, claim.gamma), mover_mass(claim.n)
    pre_norm = norm(slot.params)
    good = _fits(
        slot.params, pre_norm, mass_params, claim.world_size, reference=claim.reference
    ) and _fits(slot.buffers, norm(slot.buffers), mass_buffers, claim.world_size)
    declared = not good
    slot.write_header(
        SlotHeader(
            cycle=claim.cycle,
            n=claim.n if good else 0,
            samples=claim.samples,
            mass_params=mass_params if good else 0.0,
            mass_buffers=mass_buffers if good else 0.0,
            declared=declared,
        )
    )
    return SnapshotVerdict(
        declared=declared,
        n=claim.n if good else 0,
        pre_norm=pre_norm,
        fault=None if good else _name_fault(layout, slot, claim),
        strays=strays,
    )


def is_live(layout: FlatLayout, slot_params: F32) -> bool:
    """Return whether the model trains in the slot itself, so that a snapshot copies nothing."""
    return layout.copies is None and np.may_share_memory(layout.memory, slot_params)


def _write_values(layout: FlatLayout, slot: Slot) -> None:
    params, buffers = torch.from_numpy(slot.params), torch.from_numpy(slot.buffers)
    if layout.copies is not None:
        layout.copies.download(layout.region, slot.params)
    elif not is_live(layout, slot.params):
        np.copyto(slot.params, layout.memory)
    with torch.no_grad():
        for placed in layout.params:
            if not placed.in_region:
                write_segment(params, placed.segment, placed.home)
        for buffer in layout.buffers:
            write_segment(buffers, buffer.segment, buffer.primary.current())


def write_segment(region: torch.Tensor, segment: Segment, source: torch.Tensor) -> None:
    """Write a tensor into its place in a region: C order, f32, complex numbers as pairs."""
    plain = source.detach().resolve_conj().resolve_neg()
    values = torch.view_as_real(plain) if plain.is_complex() else plain
    _values_of(region, segment).view(values.shape).copy_(values)


def _values_of(region: torch.Tensor, segment: Segment) -> torch.Tensor:
    return region[segment.offset : segment.offset + segment.numel]


def largest_size(tensor: torch.Tensor) -> float:
    """Return max|x| of a tensor as a snapshot would hold it; NaN or infinite if a value is."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    values = torch.view_as_real(plain) if plain.is_complex() else plain
    return _largest(values.to(torch.float32))


def _largest(values: torch.Tensor) -> float:
    """Return max|x|; NaN if any value is NaN."""
    if values.numel() == 0:
        return 0.0
    smallest, largest = torch.aminmax(values)
    return float(torch.maximum(-smallest, largest))


def _fits(
    values: F32, size: float, mass: float, world_size: int, *, reference: float | None = None
) -> bool:
    """Decide on the norm where it can: no |x| is above it, and it is finite if all are."""
    if _is_sendable(mass, size * (1 + NORM_ERROR), world_size, reference):
        return True
    largest = _largest(torch.from_numpy(values)) if math.isfinite(size) else size
    return _is_sendable(mass, largest, world_size, reference)


def _is_sendable(mass: float, largest: float, world_size: int, reference: float | None) -> bool:
    """Decide on max|x|; where a reference is subtracted and added again, both ways must fit."""
    if reference is None:
        return is_representable(mass, largest, world_size=world_size)
    return is_representable(mass, largest + reference, world_size=2 * world_size)


def _name_fault(layout: FlatLayout, slot: Slot, claim: Claim) -> str:
    params_mass, buffers_mass = gamma_mass(claim.n, claim.gamma), mover_mass(claim.n)
    regions = (
        (slot.params, layout.geometry.params, params_mass, claim.reference),
        (slot.buffers, layout.geometry.buffers, buffers_mass, None),
    )
    for array, segments, mass, reference in regions:
        region = torch.from_numpy(array)
        for segment in segments:
            largest = _largest(_values_of(region, segment))
            if not math.isfinite(largest):
                return f"{segment.name} holds a value that is not finite"
            if not _is_sendable(mass, largest, claim.world_size, reference):
                return f"{segment.name} times the mass {mass:g} leaves the range of f32"
    return "a value is not finite"
