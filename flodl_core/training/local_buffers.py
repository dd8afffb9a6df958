"""Integer and bool buffers by value, for the checkpoint: never through a float.

They are deterministic and stay on their rank; a save takes those of one rank, and a run
that goes on from it gives them to every rank.
"""

import math
from collections.abc import Mapping

import torch

from flodl_core.errors import CheckpointError
from flodl_core.messages.timing import TensorBlob
from flodl_core.training.flat import FlatLayout
from flodl_core.training.geometry import dtype_name


def pack_local_buffers(layout: FlatLayout) -> dict[str, TensorBlob]:
    """Return every integer and bool tensor of the model by state-dict name.

    Raises:
        SchemaDriftError: one is gone, or has another shape or dtype.
    """
    return {name: pack_tensor(tensor) for name, tensor in layout.local_tensors().items()}


def pack_tensor(tensor: torch.Tensor) -> TensorBlob:
    """Return a tensor's bytes in C order, as this little-endian machine holds them."""
    plain = tensor.detach().cpu().contiguous()
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return TensorBlob(dtype=dtype_name(plain.dtype), shape=tuple(plain.shape), data=raw)


def restore_local_buffers(layout: FlatLayout, blobs: Mapping[str, TensorBlob]) -> None:
    """Overwrite the integer and bool tensors of the model; all of them, or none.

    Args:
        layout: of the rank's model.
        blobs: by state-dict name.

    Raises:
        CheckpointError: one is missing, unknown, or has another shape or dtype; it is named.
    """
    tensors = layout.local_tensors()
    if tensors.keys() != blobs.keys():
        name = min(tensors.keys() ^ blobs.keys())
        whose = "the model" if name in blobs else "the bundle"
        raise CheckpointError(f"{whose} has no integer or bool buffer {name!r}")
    values = {name: unpack_tensor(name, blob) for name, blob in blobs.items()}
    for name, tensor in tensors.items():
        value = values[name]
        if value.dtype != tensor.dtype or value.shape != tensor.shape:
            raise CheckpointError(
                f"buffer {name!r} is {dtype_name(value.dtype)} {list(value.shape)} in the bundle, "
                f"and {dtype_name(tensor.dtype)} {list(tensor.shape)} in the model"
            )
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(values[name])


def unpack_tensor(name: str, blob: TensorBlob) -> torch.Tensor:
    """Return the tensor that `pack_tensor` was given.

    Raises:
        CheckpointError: its dtype is none of torch's, or its bytes are too few or too many.
    """
    dtype = getattr(torch, blob.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(f"buffer {name!r} has dtype {blob.dtype!r}, which torch has not")
    expected = math.prod(blob.shape) * dtype.itemsize
    if len(blob.data) != expected:
        raise CheckpointError(
            f"buffer {name!r} came with {len(blob.data)} bytes, {expected} were expected"
        )
    if not expected:
        return torch.empty(blob.shape, dtype=dtype)
    return torch.frombuffer(bytearray(blob.data), dtype=dtype).reshape(blob.shape)
