"""The safetensors format, written and read in pieces.

    8 bytes: length of the header, little endian
    header:  JSON {name: {dtype, shape, data_offsets}, "__metadata__": {…}}
    values:  back to back, in the order of their offsets

What it is: a writer that never holds a whole tensor, and a strict reader of the
header. The library needs whole tensors to write and has no bfloat16 in numpy.
What it is not: the choice of what is stored (`tensors`).
Who drives it: `bundle` writes, `weights` reads.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np

from flodl_core.checkpoint.tensors import TensorEntry
from flodl_core.checkpoint.whole_file import WholeFile
from flodl_core.errors import CheckpointError
from flodl_core.units import MIB

MAX_HEADER_BYTES: Final = 100 * MIB
BUNDLE_KEY: Final = "flodl.bundle"
COMPLEX_KEY: Final = "flodl.complex"

ITEM_BYTES: Final = {
    "BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """Where a tensor lies in a weights file."""

    name: str
    tag: str
    shape: tuple[int, ...]
    begin: int
    """First byte, counted from the file's own beginning."""
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsHeader:
    """What a weights file says of itself."""

    tensors: tuple[StoredTensor, ...]
    metadata: dict[str, str]


def write_weights(
    file: WholeFile, entries: Sequence[TensorEntry], *, metadata: Mapping[str, str]
) -> None:
    """Write a weights file.

    Args:
        file: an empty file that is being written.
        entries: in the order in which they are to lie.
        metadata: strings to keep in the header.

    Raises:
        CheckpointError: a tensor holds values that are not finite.
    """
    pairs = {one.name: one.complex_dtype for one in entries if one.complex_dtype is not None}
    told = {"format": "pt", **metadata}
    if pairs:
        told[COMPLEX_KEY] = json.dumps(pairs)
    header: dict[str, object] = {"__metadata__": told}
    offset = 0
    for entry in entries:
        header[entry.name] = {
            "dtype": entry.tag,
            "shape": list(entry.shape),
            "data_offsets": [offset, offset + entry.nbytes],
        }
        offset += entry.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for entry in entries:
        before = file.nbytes
        for piece in entry.pieces():
            file.write(np.ascontiguousarray(piece).view(np.uint8))
        if file.nbytes - before != entry.nbytes:
            raise CheckpointError(
                f"{entry.name} gave {file.nbytes - before} bytes, {entry.nbytes} were declared",
                fix="report this: the geometry is wrong",
            )


def read_header_untrusted(path: Path) -> WeightsHeader:
    """Read and check the header of a weights file.

    Raises:
        CheckpointError: the file is missing, cut short, or no weights file. Nothing
            else escapes.
    """
    with opened_weights(path) as file:
        return read_open_header_untrusted(file, path)


@contextmanager
def opened_weights(path: Path) -> Iterator[IO[bytes]]:
    """Open a weights file; it stays that of one save, whatever takes its name meanwhile.

    Raises:
        CheckpointError: it cannot be opened or read.
    """
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise _bad(path, error.strerror or str(error)) from error


def read_open_header_untrusted(file: IO[bytes], path: Path) -> WeightsHeader:
    """Read and check the header of a weights file that is open at its beginning.

    Raises:
        CheckpointError: as for `read_header_untrusted`.
        OSError: the system refused.
    """
    try:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
            raise _bad(path, "its header is longer than the file")
        header = json.loads(file.read(length))
        return _parse(header, data_begin=8 + length, data_bytes=size - 8 - length)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _bad(path, f"its header does not hold ({error})") from error


def _parse(header: dict[str, object], *, data_begin: int, data_bytes: int) -> WeightsHeader:
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise TypeError("its metadata are no object")
    tensors = [_parse_tensor(name, row, data_begin) for name, row in header.items()]
    tensors.sort(key=lambda one: (one.begin, one.nbytes))
    at = data_begin
    for one in tensors:
        if one.begin != at:
            raise ValueError(f"{one.name} does not follow the tensor before it")
        at += one.nbytes
    if at - data_begin != data_bytes:
        raise ValueError(f"{at - data_begin} bytes of values declared, {data_bytes} present")
    return WeightsHeader(
        tensors=tuple(tensors), metadata={str(key): str(value) for key, value in metadata.items()}
    )


def _parse_tensor(name: str, row: object, data_begin: int) -> StoredTensor:
    if not isinstance(row, dict):
        raise TypeError(f"{name} is no object")
    begin, end = row["data_offsets"]
    shape = tuple(row["shape"])
    tag = row["dtype"]
    if not all(type(one) is int and one >= 0 for one in (begin, end, *shape)):
        raise ValueError(f"{name} has a number that is none")
    if end - begin != math.prod(shape) * ITEM_BYTES[tag]:
        raise ValueError(f"{name} has {end - begin} bytes for {tag} {shape}")
    return StoredTensor(
        name=name, tag=tag, shape=shape, begin=data_begin + begin, nbytes=end - begin
    )


def _bad(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path} is no whole weights file: {why}", fix="use another bundle")
