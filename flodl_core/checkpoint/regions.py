"""From the weights file of a bundle back to the flat regions of a run.

What it is: the consensus that a resumed run begins with, as f32 regions and local buffers.
Each distinct tensor is read under its first name; ties and views lie in it.
What it is not: a state dict (`weights`).
Who drives it: the launcher, once, before the join window opens.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flodl_core.checkpoint.tensors import velocity_shape
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.checkpoint.weights import read_weights
from flodl_core.errors import CheckpointError
from flodl_core.messages.job import Geometry, LocalBuffer, Segment
from flodl_core.messages.timing import TensorBlob

_FIX = "resume with the model that was saved, or from another bundle"


def read_consensus(
    path: Path, geometry: Geometry, *, bundle_id: str | None = None
) -> SavedConsensus:
    """Read a weights file into the regions of a geometry; a velocity has a file of its own.

    Args:
        path: of the file.
        geometry: of the run.
        bundle_id: of the bundle that the file must be of; None takes that of any.

    Raises:
        CheckpointError: it cannot be read or is of another bundle, a tensor is missing or of
            another kind, or a value is not finite.
    """
    stored = read_weights(path, bundle_id=bundle_id)
    return SavedConsensus(
        params=_region(stored, geometry.params, geometry.params_numel, path),
        buffers=_region(stored, geometry.buffers, geometry.buffers_numel, path),
        local_buffers={
            one.name: _local(_stored(stored, one.name, one.shape, path), one, path)
            for one in geometry.locals
        },
    )


def read_velocity(
    path: Path, geometry: Geometry, *, bundle_id: str | None = None
) -> NDArray[np.float32]:
    """Read the velocity of an outer optimizer into a region of `params_numel` values.

    Args:
        path: of the file.
        geometry: of the run.
        bundle_id: of the bundle that the file must be of; None takes that of any.

    Raises:
        CheckpointError: it cannot be read, is of another bundle or model, or a value is not
            finite.
    """
    stored = read_weights(path, bundle_id=bundle_id)
    region = np.zeros(geometry.params_numel, np.float32)
    for one in geometry.params:
        if one.name not in stored and not one.trainable:
            continue
        values = _stored(stored, one.name, velocity_shape(one), path)
        if values.dtype != np.float32:
            raise CheckpointError(f"{path.name}: {one.name} is {values.dtype}, a velocity is f32")
        if not np.isfinite(values).all():
            raise CheckpointError(f"{path.name}: {one.name} holds values that are not finite")
        region[one.offset : one.offset + one.numel] = values.reshape(-1)
    return region


def _region(
    stored: dict[str, NDArray[Any]], segments: tuple[Segment, ...], numel: int, path: Path
) -> NDArray[np.float32]:
    region = np.zeros(numel, np.float32)
    for one in segments:
        values = _stored(stored, one.name, one.shape, path)
        if np.iscomplexobj(values):
            values = np.ascontiguousarray(values).view(values.real.dtype)
        if values.size != one.numel:
            raise CheckpointError(
                f"{path.name}: {one.name} has {values.size} values, the model {one.numel}", fix=_FIX
            )
        with np.errstate(over="ignore"):
            flat = values.reshape(-1).astype(np.float32)
        if not np.isfinite(flat).all():
            raise CheckpointError(f"{path.name}: {one.name} holds values that are not finite")
        region[one.offset : one.offset + one.numel] = flat
    return region


def _stored(
    stored: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...], path: Path
) -> NDArray[Any]:
    values = stored.get(name)
    if values is None:
        raise CheckpointError(f"{path.name} holds no {name}", fix=_FIX)
    if values.shape != shape:
        raise CheckpointError(
            f"{path.name}: {name} has shape {values.shape}, the model {shape}", fix=_FIX
        )
    return values


def _local(values: NDArray[Any], buffer: LocalBuffer, path: Path) -> TensorBlob:
    dtype = "bool" if values.dtype == np.bool_ else values.dtype.name
    if dtype != buffer.dtype:
        raise CheckpointError(
            f"{path.name}: {buffer.name} is {dtype}, the model has {buffer.dtype}", fix=_FIX
        )
    data = np.ascontiguousarray(values).tobytes()
    assert len(data) == math.prod(buffer.shape) * values.dtype.itemsize
    return TensorBlob(dtype=buffer.dtype, shape=buffer.shape, data=data)
