"""Integer and bool buffers by value, for the checkpoint: never through a float.

They are deterministic and stay on their rank; a save takes those of one rank.
"""

import torch

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
