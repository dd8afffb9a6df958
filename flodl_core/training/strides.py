"""Arithmetic on shapes and strides: which elements of a storage a tensor touches.

Two tensors of one storage may be the same, nested, interleaved or partly
overlapping. The common cases are decided on their extents; what is left is
decided exactly, on the list of elements.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

Indices = npt.NDArray[np.int64]


def last_element(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the offset of the furthest element from the first; 0 for an empty tensor."""
    if 0 in shape:
        return 0
    return sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def first_element(tensor: torch.Tensor) -> int:
    """Return the storage index of the tensor's first element."""
    return int(tensor.storage_offset())


def end_element(tensor: torch.Tensor) -> int:
    """Return the storage index of the tensor's last element."""
    return first_element(tensor) + last_element(tensor.shape, tensor.stride())


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of logical C order, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def has_expanded_dim(tensor: torch.Tensor) -> bool:
    """Return whether two elements of a dimension are the same memory (stride 0)."""
    return tensor.numel() > 0 and any(
        stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the tensor fills its extent without gaps, each element once."""
    return (
        tensor.numel() == last_element(tensor.shape, tensor.stride()) + 1
        and not overlaps_itself(tensor)
    ) or tensor.numel() == 0


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Return whether two different indices of the tensor are the same memory."""
    if tensor.numel() < 2:
        return False
    dims = sorted(
        (stride, size)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if size > 1
    )
    reach = 0
    for stride, size in dims:
        if stride <= reach:
            return len(np.unique(elements(tensor))) < tensor.numel()
        reach += stride * (size - 1)
    return False


def elements(tensor: torch.Tensor) -> Indices:
    """Return the storage index of every element, in the shape of the tensor."""
    index = np.full((), first_element(tensor), dtype=np.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        index = index[..., None] + np.arange(size, dtype=np.int64) * stride
    return index


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one storage share an element."""
    first = max(first_element(one), first_element(other))
    last = min(end_element(one), end_element(other))
    if first > last:
        return False
    if is_dense(one) and is_dense(other):
        return True
    return bool(np.intersect1d(elements(one), elements(other)).size)


def covers(whole: torch.Tensor, part: torch.Tensor) -> bool:
    """Return whether every element of `part` is one of `whole`; both of one storage."""
    if _place(whole) == _place(part):
        return True
    if is_dense(whole):
        return first_element(whole) <= first_element(part) and end_element(part) <= end_element(
            whole
        )
    return bool(np.isin(elements(part), elements(whole)).all())


def express(part: torch.Tensor, whole: torch.Tensor) -> tuple[tuple[int, ...], int] | None:
    """Describe `part` inside `whole` as if `whole` lay in logical C order.

    Args:
        part: a tensor whose elements `whole` covers.
        whole: the tensor that is laid out.

    Returns:
        Strides and offset of `part` in elements of that layout, or None where no
        strides say it.
    """
    if _place(whole) == _place(part):
        return c_strides(whole.shape), 0
    if whole.is_contiguous():
        return _plain_strides(part), first_element(part) - first_element(whole)
    base = first_element(whole)
    position = np.full(end_element(whole) - base + 1, -1, dtype=np.int64)
    position[elements(whole).reshape(-1) - base] = np.arange(whole.numel(), dtype=np.int64)
    index = position[elements(part) - base]
    offset = int(index.reshape(-1)[0])
    strides = list(c_strides(part.shape))
    for dim, size in enumerate(part.shape):
        if size > 1:
            strides[dim] = int(index.take(1, axis=dim).reshape(-1)[0]) - offset
    said = np.full((), offset, dtype=np.int64)
    for size, stride in zip(part.shape, strides, strict=True):
        said = said[..., None] + np.arange(size, dtype=np.int64) * stride
    if not np.array_equal(said, index) or any(stride < 0 for stride in strides):
        return None
    return tuple(strides), offset


def _plain_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return its strides, with those of C order where a dimension of one element has any."""
    plain = c_strides(tensor.shape)
    return tuple(
        stride if size > 1 else standard
        for size, stride, standard in zip(tensor.shape, tensor.stride(), plain, strict=True)
    )


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    return tuple(tensor.shape), tuple(tensor.stride()), first_element(tensor)
