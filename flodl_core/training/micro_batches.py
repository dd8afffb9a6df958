"""Cutting a batch into micro-batches: which of its parts go with which samples.

```
tensor, numpy array          one row a sample: cut
list or tuple without either one thing a sample, if it is as long: cut
number, text, None           of the whole batch: goes with every piece
anything else                refused by name
```

A part that went whole beside one that was cut would be taken for other samples.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from numbers import Number

import numpy as np
import torch

from flodl_core.errors import JobError
from flodl_core.training.batches import Batch, is_packed, leaves_of, rebuilt, refilled

_CUT_FIX = (
    "let collate give tensors and arrays whose first dimension counts samples and lists of one "
    "thing a sample, or unset micro_batch"
)
_WHOLE = (str, bytes, Number, np.generic, type(None))


def cut_batch(batch: Batch, micro_batch: int) -> Iterator[tuple[Batch, float]]:
    """Yield the batch in pieces of at most `micro_batch` samples, each with its share of it.

    Args:
        batch: tree of tensors.
        micro_batch: samples a piece, at least 1.

    Yields:
        The piece, and its samples divided by the batch's; the shares sum to 1.

    Raises:
        JobError: the batch holds no tensor, or something that does not tell its samples.
    """
    cutter = _Cutter(_count_samples(batch))
    for start in range(0, cutter.samples, micro_batch):
        part = slice(start, min(start + micro_batch, cutter.samples))
        yield cutter.cut(batch, part), (part.stop - part.start) / cutter.samples


class _Cutter:
    def __init__(self, samples: int) -> None:
        self.samples = samples

    def cut(self, tree: Batch, part: slice) -> Batch:
        if isinstance(tree, MutableMapping):
            return refilled(tree, ((key, self.cut(value, part)) for key, value in tree.items()))
        if isinstance(tree, list | tuple) and not is_packed(tree):
            if self._tells_samples(tree):
                return rebuilt(tree, list(tree[part]))
            return rebuilt(tree, [self.cut(value, part) for value in tree])
        if isinstance(tree, torch.Tensor | np.ndarray):
            return self._cut_rows(tree, part)
        if isinstance(tree, _WHOLE):
            return tree
        raise self._refusal(f"a {type(tree).__qualname__}")

    def _cut_rows(self, rows: Batch, part: slice) -> Batch:
        kind = "tensor" if isinstance(rows, torch.Tensor) else "numpy array"
        if isinstance(rows, torch.Tensor) and (rows.is_nested or rows.layout != torch.strided):
            raise self._refusal(f"a nested or sparse {kind}")
        if rows.ndim == 0 or rows.shape[0] != self.samples:
            raise self._refusal(f"a {kind} of shape {tuple(rows.shape)}")
        return rows[part]

    def _tells_samples(self, items: Batch) -> bool:
        """Return whether a list has one thing a sample; a record or a list of lists has not."""
        if hasattr(items, "_fields") or not items or any(_holds_rows(item) for item in items):
            return False
        inner = [len(item) for item in items if isinstance(item, list | tuple)]
        if len(items) != self.samples:
            if len(inner) == len(items) or any(isinstance(item, Mapping) for item in items):
                return False
            raise self._refusal(f"{_shown(items)}")
        if self.samples in inner and self.samples > 1:
            raise self._refusal(
                f"{_shown(items)} as long as it, either of which may be the samples"
            )
        return True

    def _refusal(self, what: str) -> JobError:
        return JobError(
            f"a batch of {self.samples} samples holds {what}, "
            "which cannot be cut into micro-batches",
            fix=_CUT_FIX,
        )


def _shown(items: Batch) -> str:
    kinds = sorted({type(item).__qualname__ for item in items})
    return f"a {type(items).__qualname__} of {len(items)} {' and '.join(kinds)}"


def _holds_rows(tree: Batch) -> bool:
    """Return whether there is a tensor or an array anywhere in a tree."""
    return any(isinstance(leaf, torch.Tensor | np.ndarray) for leaf in leaves_of(tree))


def _count_samples(batch: Batch) -> int:
    for leaf in leaves_of(batch):
        if isinstance(leaf, torch.Tensor | np.ndarray) and leaf.ndim > 0:
            return int(leaf.size(0)) if isinstance(leaf, torch.Tensor) else leaf.shape[0]
    raise JobError("a batch holds no tensor to cut into micro-batches", fix=_CUT_FIX)
