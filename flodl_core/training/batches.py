"""Batches as trees of tensors: moving one to a device, and cutting one into micro-batches.

A batch is a tensor, or tuples, named tuples, lists and dicts of batches; the
first dimension of every tensor counts samples. Nothing here knows of models.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from flodl_core.errors import JobError

Batch: TypeAlias = Any
"""A tree of tensors, as the job's collate made it."""

_CUT_FIX = "let collate give tensors whose first dimension counts samples, or unset micro_batch"


def move_batch(batch: Batch, device: torch.device) -> Batch:
    """Return the batch with every tensor on `device`; other leaves are returned as they are."""
    return map_tensors(batch, lambda leaf: leaf.to(device, non_blocking=True))


def pin_batch(batch: Batch) -> Batch:
    """Return the batch with every tensor in pinned memory, from which a copy to a GPU overlaps."""
    return map_tensors(batch, torch.Tensor.pin_memory)


def map_tensors(batch: Batch, function: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    """Return the batch with every tensor as the function makes it; other leaves as they are."""
    return _map_leaves(batch, lambda leaf: function(leaf) if torch.is_tensor(leaf) else leaf)


def cut_batch(batch: Batch, micro_batch: int) -> Iterator[tuple[Batch, float]]:
    """Yield the batch in pieces of at most `micro_batch` samples, each with its share of it.

    Args:
        batch: tree of tensors; other leaves go with every piece.
        micro_batch: samples a piece, at least 1.

    Yields:
        The piece, and its samples divided by the batch's; the shares sum to 1.

    Raises:
        JobError: the batch holds no tensor, or one whose first dimension is another.
    """
    samples = _count_samples(batch)
    for start in range(0, samples, micro_batch):
        stop = min(start + micro_batch, samples)
        yield _map_leaves(batch, _cutter(start, stop, samples)), (stop - start) / samples


def _cutter(start: int, stop: int, samples: int) -> Callable[[Batch], Batch]:
    def cut(leaf: Batch) -> Batch:
        if not torch.is_tensor(leaf):
            return leaf
        if leaf.ndim == 0 or leaf.shape[0] != samples:
            raise JobError(
                f"a batch of {samples} samples holds a tensor of shape {tuple(leaf.shape)}, "
                "which cannot be cut into micro-batches",
                fix=_CUT_FIX,
            )
        return leaf[start:stop]

    return cut


def _count_samples(batch: Batch) -> int:
    found: list[int] = []

    def look(leaf: Batch) -> Batch:
        if torch.is_tensor(leaf) and leaf.ndim > 0:
            found.append(leaf.shape[0])
        return leaf

    _map_leaves(batch, look)
    if not found:
        raise JobError("a batch holds no tensor to cut into micro-batches", fix=_CUT_FIX)
    return found[0]


def _map_leaves(tree: Batch, function: Callable[[Batch], Batch]) -> Batch:
    if isinstance(tree, dict):
        return type(tree)({key: _map_leaves(value, function) for key, value in tree.items()})
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map_leaves(value, function) for value in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(_map_leaves(value, function) for value in tree)
    return function(tree)
