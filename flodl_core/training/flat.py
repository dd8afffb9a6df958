"""The flat layout: one model bound to the geometry of its run.

It owns the parameters' memory, knows which tensor each name must be, and puts
back what strayed from it. Snapshot and adoption copy through it. Made once, after
the model is on its device and before the optimizer is; the training thread is the
only one to touch it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn

from flodl_core.errors import SchemaDriftError
from flodl_core.messages.job import Geometry, Segment, View
from flodl_core.training.device_copies import DeviceCopies
from flodl_core.training.geometry import build_geometry, dtype_name, require_same
from flodl_core.training.placement import F32, Binding, place_params
from flodl_core.training.strides import overlaps_itself
from flodl_core.training.survey import Cluster, Named, survey_model, walk_names

Tree: TypeAlias = tuple[tuple[nn.Module, tuple[nn.Module | None, ...]], ...]
"""Each module with its children."""

_DRIFT_FIX = "keep the model's tensors the same from the first batch to the last"


@dataclass(frozen=True, slots=True, eq=False)
class BufferName:
    """One name of a buffer segment; the module may hold another tensor at each batch."""

    name: str
    module: nn.Module
    attribute: str
    view: View
    dtype: torch.dtype

    def current(self) -> torch.Tensor:
        """Return the tensor that the module holds now.

        Raises:
            SchemaDriftError: it is gone, or has another shape or dtype.
        """
        return _require_like(
            self.name, self.module._buffers.get(self.attribute), self.view.shape, self.dtype
        )


@dataclass(frozen=True, slots=True, eq=False)
class PlacedBuffer:
    """A buffer segment with the names that share it."""

    segment: Segment
    names: tuple[BufferName, ...]
    primary: BufferName


class FlatLayout:
    """A model whose parameters lie where the run's geometry says.

    Attributes:
        geometry: of the run.
        region: the parameter region that f32 parameters live in, flat, on their device.
        copies: how the region travels from and to host memory; None where it lies there.
        params: every parameter segment with its memory, in the order of the geometry.
        buffers: every buffer segment with its names, in the order of the geometry.
    """

    def __init__(
        self, model: nn.Module, geometry: Geometry, *, params_memory: F32 | torch.Tensor
    ) -> None:
        """Move the model's parameters into the layout; every Parameter object stays the same.

        Args:
            model: on its device, with its memory format.
            geometry: what the run agreed on.
            params_memory: the slot's parameter region, or a region of the rank's own where it
                trains on while the slot is read, or on the device of a GPU.

        Raises:
            LayoutError: a tensor cannot be reduced.
            SchemaDriftError: the model is not the one that the run agreed on.
        """
        survey = survey_model(model)
        require_same(build_geometry(survey), geometry)
        self.geometry = geometry
        given = params_memory
        self.region = given if isinstance(given, torch.Tensor) else torch.from_numpy(given)
        on_gpu = self.region.device.type == "cuda"
        self.copies = DeviceCopies(self.region.device) if on_gpu else None
        self._model = model
        self.params = place_params(survey.params, geometry.params, self.region)
        self.buffers = tuple(
            _place_buffer(cluster, segment)
            for cluster, segment in zip(survey.buffers, geometry.buffers, strict=True)
        )
        self._locals = survey.locals
        self._holders = self._find_holders()
        self._tree = _tree_of(model)
        self._census = self._count_tensors()
        self._strays_named: set[str] = set()
        self._takes_part = [False] * len(self.params)
        self._untrained: tuple[int, ...] | None = None

    @property
    def memory(self) -> F32:
        """The parameter region as an array, where it lies in host memory."""
        array: F32 = self.region.numpy()
        return array

    def unfrozen(self) -> list[bool]:
        """Return for each parameter segment whether it takes gradients or is changed, or ever was.

        What was trained and is frozen again is averaged on: it was trained since the last
        average, or its own average costs nothing but its place in the sum.
        """
        for index, placed in enumerate(self.params):
            if placed.takes_gradients and not self._takes_part[index]:
                self._takes_part[index] = True
                self._untrained = None
        return list(self._takes_part)

    def untrained(self) -> tuple[int, ...]:
        """Return the numbers of the segments that nobody trained or changed, as far as is known."""
        if self._untrained is None:
            flags = self.unfrozen()
            self._untrained = tuple(
                index
                for index, placed in enumerate(self.params)
                if placed.segment.numel and not flags[index]
            )
        return self._untrained

    def note_changed(self, numbers: Iterable[int]) -> None:
        """Have segments take part from now on: something else than a gradient changes them."""
        for index in numbers:
            self._takes_part[index] = True
            self._untrained = None

    def gather_strays(self) -> tuple[str, ...]:
        """Put every parameter that left the layout back into it, with its values.

        A module that holds another Parameter object gets its original one back, under
        every name of a tie, so that the optimizer still owns what is trained.

        Returns:
            The names that strayed and were not named by an earlier call.

        Raises:
            SchemaDriftError: the set, shape or dtype of the tensors changed; it is named.
        """
        self._check_census()
        found: list[str] = []
        for placed in self.params:
            for binding in placed.bindings:
                held = _held_by(binding)
                if not _is_home(held, binding):
                    _bring_back(held, binding)
                    found.append(binding.name)
        fresh = tuple(name for name in found if name not in self._strays_named)
        self._strays_named.update(fresh)
        return fresh

    def local_tensors(self) -> dict[str, torch.Tensor]:
        """Return the integer and bool tensors by state-dict name, as the modules hold them.

        Raises:
            SchemaDriftError: one is gone, or has another shape or dtype.
        """
        return {
            entry.name: _require_like(
                entry.name, _attribute(entry), tuple(entry.tensor.shape), entry.tensor.dtype
            )
            for entry in self._locals
        }

    def _check_census(self) -> None:
        if self._count_tensors() == self._census and _is_same_tree(self._tree):
            return
        now = {entry.name: entry.module for entry in walk_names(self._model)}
        for name in sorted(now.keys() ^ self._holders.keys()):
            verb = "appeared in" if name in now else "is gone from"
            raise SchemaDriftError(f"{name!r} {verb} the model during the run", fix=_DRIFT_FIX)
        for name, module in now.items():
            if module is not self._holders[name]:
                raise SchemaDriftError(
                    f"the module of {name!r} was replaced by another {type(module).__name__} "
                    "during the run",
                    fix="change the values of its tensors instead, as load_state_dict does",
                )
        self._tree = _tree_of(self._model)
        self._census = self._count_tensors()

    def _find_holders(self) -> dict[str, nn.Module]:
        """Return the module of each name, as the layout knows it."""
        holders = {one.name: one.module for placed in self.params for one in placed.bindings}
        holders |= {one.name: one.module for placed in self.buffers for one in placed.names}
        return holders | {one.name: one.module for one in self._locals}

    def _count_tensors(self) -> int:
        """Return how many tensors the modules hold; a name that holds None is none."""
        tables = (
            table for module, _ in self._tree for table in (module._parameters, module._buffers)
        )
        return sum(tensor is not None for table in tables for tensor in table.values())


def _tree_of(model: nn.Module) -> Tree:
    return tuple((module, tuple(module._modules.values())) for module in model.modules())


def _is_same_tree(tree: Tree) -> bool:
    """Return whether every module still has the very children that it had."""
    return all(
        len(module._modules) == len(children)
        and all(
            held is known for held, known in zip(module._modules.values(), children, strict=True)
        )
        for module, children in tree
    )


def _held_by(binding: Binding) -> torch.Tensor:
    table = binding.module._buffers if binding.original is None else binding.module._parameters
    return _require_like(
        binding.name, table.get(binding.attribute), tuple(binding.view.shape), binding.view.dtype
    )


def _is_home(held: torch.Tensor, binding: Binding) -> bool:
    if binding.original is not None and held is not binding.original:
        return False
    view = binding.view
    return (
        held.data_ptr() == view.data_ptr()
        and held.stride() == view.stride()
        and held.device == view.device
    )


def _bring_back(held: torch.Tensor, binding: Binding) -> None:
    with torch.no_grad():
        binding.view.copy_(held.detach())
    if binding.original is None:
        binding.module._buffers[binding.attribute] = binding.view
        return
    binding.original.data = binding.view
    if held is not binding.original:
        binding.original.requires_grad_(held.requires_grad)
        binding.module._parameters[binding.attribute] = binding.original


def _attribute(entry: Named) -> torch.Tensor | None:
    table = entry.module._parameters if entry.is_param else entry.module._buffers
    return table.get(entry.attribute)


def _require_like(
    name: str, tensor: torch.Tensor | None, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    if tensor is None:
        raise SchemaDriftError(f"{name!r} is gone from the model during the run", fix=_DRIFT_FIX)
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise SchemaDriftError(
            f"{name!r} became {dtype_name(tensor.dtype)} {list(tensor.shape)} during the run, "
            f"expected {dtype_name(dtype)} {list(shape)}",
            fix=_DRIFT_FIX,
        )
    return tensor


def _place_buffer(cluster: Cluster, segment: Segment) -> PlacedBuffer:
    """Bind a buffer segment; an expanded buffer gets memory that can be written."""
    primary = cluster.primary.tensor
    if overlaps_itself(primary):
        flat = primary.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
        for member, view in zip(cluster.members, segment.views, strict=True):
            member.module._buffers[member.attribute] = flat.as_strided(
                view.shape, view.strides, view.storage_offset
            )
    names = tuple(
        BufferName(
            name=member.name,
            module=member.module,
            attribute=member.attribute,
            view=view,
            dtype=member.tensor.dtype,
        )
        for member, view in zip(cluster.members, segment.views, strict=True)
    )
    return PlacedBuffer(
        segment=segment, names=names, primary=names[cluster.members.index(cluster.primary)]
    )
