"""Batches as trees of tensors: moving one to a device, and what their containers are.

A batch is a tensor, or tuples, named tuples, lists and dicts of batches; the
first dimension of every tensor counts samples. Nothing here knows of models.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, TypeAlias

import torch
from torch.nn.utils.rnn import PackedSequence

from flodl_core.errors import JobError

Batch: TypeAlias = Any
"""A tree of tensors, as the job's collate made it."""

_KIND_FIX = "let collate give tensors in tuples, named tuples, lists and dicts"


def move_batch(batch: Batch, device: torch.device) -> Batch:
    """Return the batch with every tensor on `device`.

    What else knows how to move itself does so, where the device is no CPU; other leaves are
    returned as they are.

    Raises:
        JobError: it holds something that cannot be moved; its class is named.
    """
    return map_leaves(batch, lambda leaf: move_leaf(leaf, device))


def move_leaf(leaf: Batch, device: torch.device) -> Batch:
    """Return a leaf on `device`; see `move_batch`."""
    if isinstance(leaf, torch.Tensor) or is_packed(leaf):
        return leaf.to(device, non_blocking=True)
    move = getattr(leaf, "to", None)
    if device.type == "cpu" or not callable(move):
        return leaf
    try:
        return move(device)
    except Exception as error:
        raise _unfit(leaf, f"which cannot be moved to {device}", error) from error


def pin_batch(batch: Batch) -> Batch:
    """Return the batch with every tensor in pinned memory, from which a copy to a GPU overlaps."""
    return map_leaves(batch, _pin_leaf)


def _pin_leaf(leaf: Batch) -> Batch:
    return leaf.pin_memory() if isinstance(leaf, torch.Tensor) or is_packed(leaf) else leaf


def is_packed(tree: Batch) -> bool:
    """Return whether it is torch's named tuple of which one part has to stay on the CPU."""
    return isinstance(tree, PackedSequence)


def map_leaves(tree: Batch, function: Callable[[Batch], Batch]) -> Batch:
    """Return the batch with every leaf as the function makes it, in containers like its own.

    Raises:
        JobError: a container cannot be made again; its class is named.
    """
    if isinstance(tree, MutableMapping):
        return refilled(tree, ((key, map_leaves(value, function)) for key, value in tree.items()))
    if isinstance(tree, list | tuple) and not is_packed(tree):
        return rebuilt(tree, [map_leaves(value, function) for value in tree])
    return function(tree)


def leaves_of(tree: Batch) -> Iterator[Batch]:
    """Yield every leaf of a batch, in its order."""
    if isinstance(tree, MutableMapping):
        tree = tuple(tree.values())
    if isinstance(tree, list | tuple) and not is_packed(tree):
        for value in tree:
            yield from leaves_of(value)
    else:
        yield tree


def refilled(
    tree: MutableMapping[Any, Any], pairs: Iterable[tuple[Any, Any]]
) -> MutableMapping[Any, Any]:
    """Return a mapping of the same class, and with all that it has beside its values.

    Raises:
        JobError: it cannot be copied or filled; its class is named.
    """
    values = dict(pairs)
    if type(tree) is dict:
        return values
    try:
        made = copy.copy(tree)
        for key, value in values.items():
            made[key] = value
    except Exception as error:
        raise _unfit(tree, "which cannot be copied and filled", error) from error
    return made


def rebuilt(tree: Batch, values: list[Batch]) -> Batch:
    """Return a list, tuple or named tuple of the same class.

    Raises:
        JobError: its class makes none of values alone; it is named.
    """
    kind = type(tree)
    try:
        if not hasattr(tree, "_fields"):
            return kind(values)
        return named_of(kind, values)
    except Exception as error:
        raise _unfit(tree, "which cannot be made of its items", error) from error


def named_of(kind: Any, values: list[Batch]) -> Batch:  # noqa: ANN401 - a named tuple's class
    """Return a named tuple of a class, whatever its constructor takes."""
    return kind._make(values) if hasattr(kind, "_make") else kind(*values)


def _unfit(what: object, why: str, error: Exception) -> JobError:
    return JobError(
        f"a batch holds a {type(what).__qualname__}, {why} ({type(error).__name__}: {error})",
        fix=_KIND_FIX,
    )
