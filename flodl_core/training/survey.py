"""Which tensors a model has, and which of them are one: the survey before the layout.

It walks the modules once, refuses by name what cannot be reduced, and groups
every floating-point parameter and persistent buffer into *clusters*: tensors
that share elements (tied names, views, transposes of one another). It reads the
model and changes nothing; geometry and layout are made from its answer.

Buffers registered with persistent=False are caches that the state dict leaves
out: they stay local and may change shape at will.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from flodl_core.errors import LayoutError
from flodl_core.training.strides import (
    covers,
    end_element,
    first_element,
    has_expanded_dim,
    overlap,
    overlaps_itself,
)

_WRAPPERS = frozenset(
    {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule"}
)


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """One name of one tensor, and where the model holds it."""

    name: str
    is_param: bool
    module: nn.Module
    attribute: str
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Tensors that share elements: one segment of the layout."""

    primary: Named
    """The member that holds every element of the cluster."""
    members: tuple[Named, ...]
    """In registration order, the primary included."""

    @property
    def is_param(self) -> bool:
        """Whether it is reduced with the parameters: any member is one."""
        return any(member.is_param for member in self.members)

    @property
    def trainable(self) -> bool:
        """Whether any member requires a gradient now."""
        return any(member.is_param and member.tensor.requires_grad for member in self.members)


@dataclass(frozen=True, slots=True)
class Survey:
    """What a model has, in registration order."""

    params: tuple[Cluster, ...]
    buffers: tuple[Cluster, ...]
    locals: tuple[Named, ...]
    """Integer and bool tensors: they stay on their rank."""


def survey_model(model: nn.Module) -> Survey:
    """Group a model's tensors.

    Raises:
        LayoutError: a tensor cannot be reduced; it is named, with the reason and the fix.
    """
    for path, module in model.named_modules():
        _refuse_wrapped(path, module)
    named = list(_walk(model))
    for entry in named:
        _refuse_tensor(entry)
    reduced = [entry for entry in named if _is_reduced(entry.tensor)]
    clusters = sorted(
        (_make_cluster(group, reduced) for group in _group(reduced)),
        key=lambda cluster: reduced.index(cluster.members[0]),
    )
    return Survey(
        params=tuple(cluster for cluster in clusters if cluster.is_param),
        buffers=tuple(cluster for cluster in clusters if not cluster.is_param),
        locals=tuple(entry for entry in named if not _is_reduced(entry.tensor)),
    )


def walk_names(model: nn.Module) -> Iterator[Named]:
    """Yield every name of every parameter and persistent buffer, ties under each name."""
    yield from _walk(model)


def _walk(model: nn.Module) -> Iterator[Named]:
    for path, module in model.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        for attribute, parameter in module._parameters.items():
            if parameter is not None:
                yield _named(prefix + attribute, module, parameter, is_param=True)
        for attribute, buffer in module._buffers.items():
            if buffer is not None and attribute not in module._non_persistent_buffers_set:
                yield _named(prefix + attribute, module, buffer, is_param=False)


def _named(name: str, module: nn.Module, tensor: torch.Tensor, *, is_param: bool) -> Named:
    attribute = name.rpartition(".")[2]
    return Named(name=name, is_param=is_param, module=module, attribute=attribute, tensor=tensor)


def _is_reduced(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _refuse_wrapped(path: str, module: nn.Module) -> None:
    for ancestor in type(module).__mro__:
        if ancestor.__name__ in _WRAPPERS and ancestor.__module__.startswith("torch."):
            raise LayoutError(
                f"module {path or 'model'!r} is wrapped in {ancestor.__name__}",
                fix="give the plain model; flodl keeps the copies together itself",
            )


def _refuse_tensor(entry: Named) -> None:
    tensor, kind = entry.tensor, "parameter" if entry.is_param else "buffer"
    if nn.parameter.is_lazy(tensor):
        raise LayoutError(
            f"{kind} {entry.name!r} is uninitialised (lazy), so its shape is not known",
            fix="run one forward pass in the job's model function",
        )
    if any(ancestor.__name__ == "DTensor" for ancestor in type(tensor).__mro__):
        raise LayoutError(
            f"{kind} {entry.name!r} is a DTensor, sharded over devices",
            fix="give the plain model, without FSDP or tensor parallelism",
        )
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise LayoutError(
            f"{kind} {entry.name!r} is {tensor.layout} {tensor.dtype}, not a dense tensor",
            fix="keep it dense",
        )
    if tensor.device.type == "meta":
        raise LayoutError(
            f"{kind} {entry.name!r} is on the meta device and has no values",
            fix="build the model on the cpu in the job's model function",
        )
    if not entry.is_param or not _is_reduced(tensor):
        return
    if has_expanded_dim(tensor):
        raise LayoutError(
            f"parameter {entry.name!r} is expanded (stride 0): its elements are one another",
            fix="register the parameter before expand(), or a contiguous() copy of it",
        )
    if overlaps_itself(tensor):
        raise LayoutError(
            f"parameter {entry.name!r} is partly overlapping itself "
            f"(shape {tuple(tensor.shape)}, strides {tensor.stride()})",
            fix="register a contiguous() copy of it",
        )


def _group(entries: Sequence[Named]) -> list[list[Named]]:
    """Return the entries in groups that share elements; an empty tensor groups by identity."""
    storages: dict[tuple[str, int], list[Named]] = {}
    for entry in entries:
        tensor = entry.tensor
        key = tensor.untyped_storage().data_ptr() if tensor.numel() else id(tensor)
        place = f"{tensor.device}" if tensor.numel() else "empty"
        storages.setdefault((place, key), []).append(entry)
    groups: list[list[Named]] = []
    for (place, _), sharing in storages.items():
        groups.extend([sharing] if place == "empty" else _split_storage(sharing))
    return groups


def _split_storage(sharing: list[Named]) -> list[list[Named]]:
    if len(sharing) == 1:
        return [sharing]
    first_dtype = sharing[0].tensor.dtype
    for entry in sharing:
        if entry.tensor.dtype != first_dtype:
            raise LayoutError(
                f"{entry.name!r} ({entry.tensor.dtype}) lies in the memory of "
                f"{sharing[0].name!r} ({first_dtype})",
                fix="give one of them memory of its own with clone()",
            )
    closed: list[list[Named]] = []
    open_groups: list[list[Named]] = []
    for entry in sorted(sharing, key=lambda named: first_element(named.tensor)):
        start = first_element(entry.tensor)
        joined, still_open = [entry], []
        for group in open_groups:
            if max(end_element(member.tensor) for member in group) < start:
                closed.append(group)
            elif any(overlap(entry.tensor, member.tensor) for member in group):
                joined = group + joined
            else:
                still_open.append(group)
        open_groups = [*still_open, joined]
    return closed + open_groups


def _make_cluster(group: list[Named], order: list[Named]) -> Cluster:
    members = tuple(sorted(group, key=order.index))
    whole = [
        member
        for member in members
        if all(member is other or covers(member.tensor, other.tensor) for other in members)
    ]
    if not whole:
        largest = max(members, key=lambda member: member.tensor.numel())
        other = next(
            m for m in members if m is not largest and not covers(largest.tensor, m.tensor)
        )
        raise LayoutError(
            f"{other.name!r} is partly overlapping {largest.name!r}: they share some elements, "
            "and neither holds all of the other's",
            fix="register the tensor that holds both, or give one of them a clone()",
        )
    primary = min(
        whole, key=lambda member: (not member.tensor.is_contiguous(), not member.is_param)
    )
    return Cluster(primary=primary, members=members)
