"""Digests by which two hosts know that they build the same model and read the same data.

Pure functions of a model and a dataset. Reading a sample may draw random numbers:
each read here runs under a fixed seed, and the global generators are put back.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from flodl_core.training.callbacks import read_sample
from flodl_core.training.geometry import dtype_name
from flodl_core.training.job import MapDataset
from flodl_core.training.strides import first_element
from flodl_core.training.survey import Survey, walk_names

_MAX_DEPTH = 32


def model_entries(model: nn.Module) -> tuple[str, ...]:
    """Return one line a tensor, `param|name|dtype|shape`, in registration order."""
    return tuple(
        f"{'param' if entry.is_param else 'buffer'}|{entry.name}|"
        f"{dtype_name(entry.tensor.dtype)}|{'x'.join(map(str, entry.tensor.shape)) or 'scalar'}"
        for entry in walk_names(model)
    )


def model_signature(entries: tuple[str, ...]) -> str:
    """Return the SHA-256 of the model's lines, in hex."""
    return _digest_lines(entries)


def layout_signature(survey: Survey, entries: tuple[str, ...]) -> str:
    """Return the SHA-256 over the lines and each tensor's stride, offset, trainable and tie group.

    The offset is the one inside its tie group, so that it does not depend on how the
    allocator placed the tensors.
    """
    lines = list(entries)
    for number, cluster in enumerate((*survey.params, *survey.buffers)):
        base = first_element(cluster.primary.tensor)
        lines.extend(
            f"{entry.name}|{tuple(entry.tensor.stride())}|{first_element(entry.tensor) - base}|"
            f"{entry.is_param and entry.tensor.requires_grad}|{number}"
            for entry in cluster.members
        )
    return _digest_lines(tuple(lines))


def dataset_signature(dataset: MapDataset, version: str | None) -> str:
    """Return the SHA-256 of length, type name, version, and items 0, n/2 and n - 1.

    An item counts where two reads under two seeds agree; one that is augmented at
    random does not. Things of unknown types count by the name of their type.

    Raises:
        Exception: whatever reading an item raises.
    """
    count = len(dataset)
    digest = hashlib.sha256(f"{count}|{type(dataset).__qualname__}|{version}".encode())
    for index in sorted({0, count // 2, count - 1} if count else set()):
        reads = [_read_digest(dataset, index, seed) for seed in (1, 2)]
        digest.update(f"|{index}:".encode())
        digest.update(reads[0] if reads[0] == reads[1] else b"varies")
    return digest.hexdigest()


def _read_digest(dataset: MapDataset, index: int, seed: int) -> bytes:
    with seeded(seed):
        item = read_sample(dataset, index)
    digest = hashlib.sha256()
    for chunk in _chunks(item, 0):
        digest.update(len(chunk).to_bytes(8, "little"))
        digest.update(chunk)
    return digest.digest()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block with every global generator at `seed`, and put their states back after it."""
    python_state, numpy_state, torch_state = (
        random.getstate(),
        np.random.get_state(),
        torch.get_rng_state(),
    )
    seed_generators(seed)
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)


def seed_generators(seed: int) -> None:
    """Seed the global generators of torch's CPU, numpy and Python.

    Args:
        seed: 0 … 2**63 - 1.
    """
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


def _chunks(value: object, depth: int) -> Iterator[bytes]:
    """Yield bytes that say what a sample is: a type's name, then its contents."""
    yield type(value).__qualname__.encode()
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, torch.Tensor):
        yield from _tensor_chunks(value.detach(), depth)
    elif isinstance(value, (np.ndarray, np.generic)):
        yield f"{value.dtype}{value.shape}".encode()
        if value.dtype.hasobject:  # its bytes are where the things lie in this process
            yield from _chunks(value.tolist(), depth + 1)
        else:
            yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, bytes):
        yield value
    elif value is None or isinstance(value, (bool, int, float, complex, str)):
        yield repr(value).encode()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _chunks(key, depth + 1)
            yield from _chunks(item, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _chunks(item, depth + 1)
    elif callable(to_bytes := getattr(value, "tobytes", None)):
        raw = to_bytes()
        yield raw if isinstance(raw, bytes) else b""


def _tensor_chunks(tensor: torch.Tensor, depth: int) -> Iterator[bytes]:
    """Yield dtype, shape and values; of what has no one storage, the tensors that it is made of."""
    if tensor.is_nested:
        yield from _chunks(list(tensor.unbind()), depth + 1)
        return
    if tensor.layout == torch.strided and not tensor.is_quantized:
        plain = tensor.cpu().resolve_conj().resolve_neg().contiguous()
        yield f"{dtype_name(plain.dtype)}{tuple(plain.shape)}".encode()
        yield plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        return
    yield f"{dtype_name(tensor.layout)}{dtype_name(tensor.dtype)}{tuple(tensor.shape)}".encode()
    for part in _parts_of(tensor):
        yield from _tensor_chunks(part, depth)


def _parts_of(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if tensor.is_quantized:
        return (tensor.dequantize(),)
    if tensor.layout == torch.sparse_coo:
        joined = tensor.coalesce()
        return joined.indices(), joined.values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor.to_dense(),)


def _digest_lines(lines: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
