"""Values that a file of a rank may hold: tensors, and containers of plain values.

What it is: the one form in which the state of optimizers and generators is written, so
that it can be read back with weights_only, which runs no code of the file.
What it is not: the choice of what is written (`rank_state`), nor a file (`rank_files`).
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from flodl_core.errors import CheckpointError, kind_of

Plain: TypeAlias = Any
"""A tensor on the CPU, None, a number, text or bytes, or a list, tuple or dict of those."""

_ATOMS: Final = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
_KEYS: Final = (str, int, float, bool)
_MAX_DEPTH: Final = 32


def to_plain(value: object, where: str, *, depth: int = 0) -> Plain:
    """Return a value as a file may hold it; tensors are on the CPU and own their memory.

    A CPU tensor that has its memory to itself is not copied.

    Args:
        value: of any kind.
        where: its name in an error.
        depth: of nesting so far.

    Raises:
        CheckpointError: it, or something inside, is of another kind; it is named.
    """
    if depth > _MAX_DEPTH:
        raise CheckpointError(f"{where} is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, torch.Tensor):
        return _own_tensor(value)
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in _ATOMS:
        return value
    if isinstance(value, Mapping):
        return {
            _plain_key(key, where): to_plain(item, f"{where}.{key}", depth=depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        items = [
            to_plain(item, f"{where}[{index}]", depth=depth + 1) for index, item in enumerate(value)
        ]
        return items if isinstance(value, list) else tuple(items)
    raise CheckpointError(
        f"{where} is {kind_of(value)}, which a rank's file cannot hold",
        fix="keep tensors, numbers, texts and containers of them in the optimizer's state",
    )


def _own_tensor(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().cpu()
    if plain.layout != torch.strided:
        return plain
    if plain.untyped_storage().nbytes() > plain.numel() * plain.element_size():
        return plain.clone()
    return plain


def _plain_key(key: object, where: str) -> object:
    if type(key) not in _KEYS:
        raise CheckpointError(f"{where} has a key that is {kind_of(key)}")
    return key
