"""From the flat regions of a run to named tensors, a piece at a time.

What it is: the list of all tensors of a state dict, each with its own dtype,
shape and name, and the bytes of each in pieces of about a megabyte. Ties and
views are written out under every name they have.
What it is not: a file format (`weights_file`), nor a copy of the model: values
are read from the regions in place.
Who drives it: `bundle.write_bundle`.

Reduced values are f32. A tensor of another floating dtype is rounded to it, to
nearest and ties to even; complex64 is two f32 values an element. The file format
has no complex32 and complex128: they are stored as a last dimension of two real
values, and `load_weights` gives them back as what they were. The velocity of an outer
optimizer is f32 whatever its parameter is.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flodl_core.errors import CheckpointError
from flodl_core.messages.job import Geometry, LocalBuffer, Segment, View
from flodl_core.messages.timing import TensorBlob

PIECE_ELEMENTS: Final = 256 * 1024

Floats = NDArray[np.float32]
Convert = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor of the state dict, as it is stored."""

    name: str
    tag: str
    """The dtype in the words of the file format."""
    itemsize: int
    shape: tuple[int, ...]
    complex_dtype: str | None
    """Set where the last dimension holds the two parts of a complex number."""
    pieces: Callable[[], Iterator[NDArray[Any]]]
    """Yields the elements in C order, little endian, in their own dtype; a piece is
    valid until the next one is taken."""

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * self.itemsize


@dataclass(frozen=True, slots=True)
class _Stored:
    tag: str
    itemsize: int
    convert: Convert
    is_complex: bool = False
    pair_of: str | None = None


def list_tensors(
    geometry: Geometry,
    *,
    params: Floats,
    buffers: Floats,
    local_buffers: Mapping[str, TensorBlob],
) -> list[TensorEntry]:
    """Return every tensor of the state dict, the widest dtypes first.

    Args:
        geometry: of the run.
        params: the committed parameter region, at least `params_numel` values.
        buffers: the committed buffer region, at least `buffers_numel` values.
        local_buffers: the integer and bool buffers, by state-dict name.

    Raises:
        CheckpointError: a tensor cannot be stored; it is named.
    """
    entries = [_view_entry(one, view, params) for one in geometry.params for view in one.views]
    entries += [_view_entry(one, view, buffers) for one in geometry.buffers for view in one.views]
    entries += [_local_entry(one, local_buffers.get(one.name)) for one in geometry.locals]
    names: set[str] = set()
    for entry in entries:
        if entry.name in names:
            raise CheckpointError(
                f"two tensors are named {entry.name}",
                fix="give every parameter and buffer of the model its own name",
            )
        names.add(entry.name)
    return sorted(entries, key=lambda entry: (-entry.itemsize, entry.name))


def list_velocity(geometry: Geometry, velocity: Floats) -> list[TensorEntry]:
    """Return the tensors of an outer velocity: f32, each distinct parameter under its first name.

    A parameter that was frozen at the start and has never moved is left out.

    Args:
        geometry: of the run.
        velocity: at least `params_numel` values; read when the pieces are taken.
    """
    parts = [(one, velocity[one.offset : one.offset + one.numel]) for one in geometry.params]
    entries = [_velocity_entry(one, flat) for one, flat in parts if one.trainable or flat.any()]
    return sorted(entries, key=lambda entry: entry.name)


def velocity_shape(segment: Segment) -> tuple[int, ...]:
    """Return the shape of a parameter's velocity; a complex one has a last dimension of two."""
    return (*segment.shape, 2) if segment.dtype.startswith("complex") else segment.shape


def velocity_bytes(geometry: Geometry) -> int:
    """Return the most bytes that a velocity's values take in their file."""
    return sum(one.numel for one in geometry.params) * _VELOCITY.itemsize


def check_storable(geometry: Geometry) -> int:
    """Check that every tensor can be stored; returns the bytes that the weights will take.

    Raises:
        CheckpointError: one cannot; it is named.
    """
    nbytes = 0
    for segment in (*geometry.params, *geometry.buffers):
        stored = _stored_of(segment.name, segment.dtype)
        parts = 2 if stored.pair_of is not None else 1
        nbytes += sum(math.prod(view.shape) * stored.itemsize * parts for view in segment.views)
    for one in geometry.locals:
        nbytes += math.prod(one.shape) * _local_dtype(one.name, one.dtype)[1].itemsize
    return nbytes


def _view_entry(segment: Segment, view: View, region: Floats) -> TensorEntry:
    stored = _stored_of(view.name, segment.dtype)
    flat: NDArray[Any] = region[segment.offset : segment.offset + segment.numel]
    if flat.shape[0] != segment.numel:
        raise CheckpointError(
            f"{segment.name} reaches to value {segment.offset + segment.numel} of a region of "
            f"{region.shape[0]}",
            fix="report this: the geometry and the committed values do not belong together",
        )
    if stored.is_complex:
        flat = flat.view(np.complex64)
    strided = _view_of(view, flat)

    def pieces() -> Iterator[NDArray[Any]]:
        for piece in _c_order_pieces(strided):
            real = piece.view(np.float32) if stored.is_complex else piece
            if not np.isfinite(real).all():
                raise _not_finite(view.name)
            converted = stored.convert(real)
            if not _is_finite(converted, stored.tag):
                raise _not_finite(view.name)
            yield converted

    shape = (*view.shape, 2) if stored.pair_of is not None else view.shape
    return TensorEntry(
        name=view.name,
        tag=stored.tag,
        itemsize=stored.itemsize,
        shape=shape,
        complex_dtype=stored.pair_of,
        pieces=pieces,
    )


def _velocity_entry(segment: Segment, flat: Floats) -> TensorEntry:
    def pieces() -> Iterator[NDArray[Any]]:
        for piece in _c_order_pieces(flat):
            if not np.isfinite(piece).all():
                raise _not_finite(f"the velocity of {segment.name}")
            yield _VELOCITY.convert(piece)

    return TensorEntry(
        name=segment.name,
        tag=_VELOCITY.tag,
        itemsize=_VELOCITY.itemsize,
        shape=velocity_shape(segment),
        complex_dtype=None,
        pieces=pieces,
    )


def _view_of(view: View, flat: NDArray[Any]) -> NDArray[Any]:
    if len(view.strides) != len(view.shape):
        raise CheckpointError(
            f"{view.name} has {len(view.shape)} dimensions and {len(view.strides)} strides",
            fix="report this: the geometry is wrong",
        )
    if math.prod(view.shape) == 0:
        return np.empty(view.shape, flat.dtype)
    last = view.storage_offset + sum(
        (extent - 1) * stride for extent, stride in zip(view.shape, view.strides, strict=True)
    )
    if view.storage_offset < 0 or min(view.strides, default=0) < 0 or last >= flat.shape[0]:
        raise CheckpointError(
            f"{view.name} reaches to element {last} of a storage of {flat.shape[0]}",
            fix="report this: the geometry is wrong",
        )
    return np.lib.stride_tricks.as_strided(
        flat[view.storage_offset :],
        shape=view.shape,
        strides=[stride * flat.dtype.itemsize for stride in view.strides],
        writeable=False,
    )


def _c_order_pieces(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    if values.size == 0:
        return
    if values.flags.c_contiguous:
        flat = values.reshape(-1)
        for start in range(0, flat.shape[0], PIECE_ELEMENTS):
            yield flat[start : start + PIECE_ELEMENTS]
        return
    walk = np.nditer(
        values,
        flags=["external_loop", "buffered"],
        order="C",
        buffersize=PIECE_ELEMENTS,
    )
    with walk:
        for piece in walk:
            yield np.ascontiguousarray(piece)


def _local_entry(buffer: LocalBuffer, blob: TensorBlob | None) -> TensorEntry:
    tag, dtype = _local_dtype(buffer.name, buffer.dtype)
    if blob is None:
        raise CheckpointError(
            f"the buffer {buffer.name} ({buffer.dtype}) was not sent by any rank",
            fix="report this: it should have come with the checkpoint's result",
        )
    nbytes = math.prod(buffer.shape) * dtype.itemsize
    if (blob.dtype, blob.shape, len(blob.data)) != (buffer.dtype, buffer.shape, nbytes):
        raise CheckpointError(
            f"the buffer {buffer.name} came as {blob.dtype} {blob.shape} of {len(blob.data)} "
            f"bytes; {buffer.dtype} {buffer.shape} of {nbytes} bytes was expected",
            fix="keep the dtype and shape of buffers unchanged while training",
        )
    data = blob.data

    def pieces() -> Iterator[NDArray[Any]]:
        if data:
            yield np.frombuffer(data, dtype=np.uint8)

    return TensorEntry(
        name=buffer.name,
        tag=tag,
        itemsize=dtype.itemsize,
        shape=buffer.shape,
        complex_dtype=None,
        pieces=pieces,
    )


def _to_bfloat16(values: NDArray[Any]) -> NDArray[Any]:
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    rounded = bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))
    upper: NDArray[np.uint16] = (rounded >> np.uint32(16)).astype("<u2")
    return upper


def _cast(dtype: str) -> Convert:
    def convert(values: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return values.astype(dtype, copy=False)

    return convert


def _is_finite(values: NDArray[Any], tag: str) -> bool:
    if tag == "BF16":
        return not bool(np.any((values & np.uint16(0x7F80)) == np.uint16(0x7F80)))
    return tag in ("F32", "F64", "C64") or bool(np.isfinite(values).all())


def _not_finite(name: str) -> CheckpointError:
    return CheckpointError(
        f"{name} holds values that are not finite, so nothing was saved",
        fix="look at the alerts of the run; the previous bundle is kept",
    )


_STORED: Final = {
    "float32": _Stored("F32", 4, _cast("<f4")),
    "float64": _Stored("F64", 8, _cast("<f8")),
    "float16": _Stored("F16", 2, _cast("<f2")),
    "bfloat16": _Stored("BF16", 2, _to_bfloat16),
    "complex64": _Stored("C64", 8, _cast("<f4"), is_complex=True),
    "complex128": _Stored("F64", 8, _cast("<f8"), is_complex=True, pair_of="complex128"),
    "complex32": _Stored("F16", 2, _cast("<f2"), is_complex=True, pair_of="complex32"),
}

_VELOCITY: Final = _STORED["float32"]

_LOCAL: Final = {
    "bool": ("BOOL", np.dtype(np.bool_)),
    "uint8": ("U8", np.dtype("<u1")),
    "int8": ("I8", np.dtype("<i1")),
    "uint16": ("U16", np.dtype("<u2")),
    "int16": ("I16", np.dtype("<i2")),
    "uint32": ("U32", np.dtype("<u4")),
    "int32": ("I32", np.dtype("<i4")),
    "uint64": ("U64", np.dtype("<u8")),
    "int64": ("I64", np.dtype("<i8")),
}


def _stored_of(name: str, dtype: str) -> _Stored:
    try:
        return _STORED[dtype]
    except KeyError:
        raise _no_dtype(name, dtype, _STORED) from None


def _local_dtype(name: str, dtype: str) -> tuple[str, np.dtype[Any]]:
    try:
        return _LOCAL[dtype]
    except KeyError:
        raise _no_dtype(name, dtype, _LOCAL) from None


def _no_dtype(name: str, dtype: str, known: Mapping[str, object]) -> CheckpointError:
    return CheckpointError(
        f"{name} has dtype {dtype}, which a bundle cannot hold",
        fix=f"use one of {', '.join(known)}",
    )
