"""Reading the weights of a bundle back.

What it is: the state dict of a bundle as numpy arrays, with no torch. With torch
there are two ways to a strict load, and both are one call:

    model.load_state_dict(safetensors.torch.load_file(weights_path(stem)))
    model.load_state_dict({n: torch.from_numpy(a) for n, a in load_weights(stem).items()})

The first does not know complex32 and complex128, the second knows every dtype
(bfloat16 and complex32 come as the wider float32 and complex64, which holds
their values exactly).
What it is not: a resume; it reads parameters and buffers only.
Who drives it: users of a trained model, and tests.
"""

import json
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from flodl_core.checkpoint.bundle import find_bundle, stem_of
from flodl_core.checkpoint.generations import WEIGHTS_SUFFIX
from flodl_core.checkpoint.weights_file import (
    BUNDLE_KEY,
    COMPLEX_KEY,
    StoredTensor,
    WeightsHeader,
    opened_weights,
    read_open_header_untrusted,
)
from flodl_core.errors import CheckpointError

_DTYPES: Final = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype("<u1"),
    "I8": np.dtype("<i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
}


def weights_path(stem: Path | str) -> Path:
    """Return the weights file of the newest complete bundle at `stem`.

    Raises:
        CheckpointError: there is no complete bundle; what was skipped is named.
    """
    search = find_bundle(stem_of(stem))
    if search.bundle is None:
        skipped = "; ".join(f"{one.path.name}: {one.why}" for one in search.skipped)
        raise CheckpointError(
            f"no complete bundle at {stem}" + (f" ({skipped})" if skipped else ""),
            fix="give the stem of a bundle, without .safetensors or .meta.json",
        )
    return search.bundle.stem.with_name(search.bundle.stem.name + WEIGHTS_SUFFIX)


def load_weights(stem: Path | str) -> dict[str, NDArray[Any]]:
    """Return the state dict of the newest complete bundle at `stem`, by name.

    Args:
        stem: of the bundle; one of its files will do.

    Returns:
        Arrays of their own, in the dtype of the tensor; bfloat16 as float32 and
        complex32 as complex64.

    Raises:
        CheckpointError: there is no complete bundle, or its weights do not hold.
    """
    return read_weights(weights_path(stem))


def read_weights(path: Path, *, bundle_id: str | None = None) -> dict[str, NDArray[Any]]:
    """Return the tensors of one weights file, as `load_weights` does.

    Args:
        path: of the file; all is read from the file that lies there now.
        bundle_id: of the bundle that the file must be of; None takes that of any.

    Raises:
        CheckpointError: it is missing, cut short, no weights file, or of another bundle.
    """
    with opened_weights(path) as file:
        header = read_open_header_untrusted(file, path)
        if bundle_id is not None and header.metadata.get(BUNDLE_KEY) != bundle_id:
            raise CheckpointError(
                f"{path.name} is of another save than the one that was found: another run still "
                "saves there",
                fix="stop that run, or wait for its end, and go on from its newest checkpoint",
            )
        return _read_all(file, header, path)


def _read_all(file: IO[bytes], header: WeightsHeader, path: Path) -> dict[str, NDArray[Any]]:
    try:
        pairs = json.loads(header.metadata.get(COMPLEX_KEY, "{}"))
        return {
            one.name: _as_complex(_read(file, one), pairs.get(one.name)) for one in header.tensors
        }
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}", fix="use another bundle"
        ) from error


def _read(file: IO[bytes], one: StoredTensor) -> NDArray[Any]:
    is_bfloat16 = one.tag == "BF16"
    dtype = np.dtype("<u2") if is_bfloat16 else _DTYPES[one.tag]
    file.seek(one.begin)
    flat: NDArray[Any] = np.fromfile(file, dtype=dtype, count=one.nbytes // dtype.itemsize)
    if flat.nbytes != one.nbytes:
        raise ValueError(f"{one.name} is cut short")
    if is_bfloat16:
        flat = (flat.astype("<u4") << np.uint32(16)).view("<f4")
    return flat.reshape(one.shape)


def _as_complex(values: NDArray[Any], dtype: str | None) -> NDArray[Any]:
    if dtype is None:
        return values
    if dtype not in ("complex32", "complex128") or values.ndim < 1 or values.shape[-1] != 2:
        raise ValueError(f"a tensor of shape {values.shape} is said to be {dtype}")
    wide = np.float32 if dtype == "complex32" else np.float64
    parts = np.ascontiguousarray(values, dtype=wide)
    return parts.view(np.complex64 if dtype == "complex32" else np.complex128).reshape(
        values.shape[:-1]
    )
