"""What a rank leaves behind when the controller vanished: its own parameters, no consensus.

    <save_path>.rank<N>.emergency.safetensors
    <save_path>.rank<N>.emergency.json          written last

One rank of a host writes it, and only where an agent outlives the launcher. No run goes
on from it by itself: the values are one rank's, some batches past the last commit.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from flodl_core.checkpoint.tensors import PIECE_ELEMENTS, TensorEntry
from flodl_core.checkpoint.weights_file import write_weights
from flodl_core.checkpoint.whole_file import writing_whole
from flodl_core.ids import SaveReason
from flodl_core.net import clock
from flodl_core.training.geometry import dtype_name
from flodl_core.training.seat import Seat
from flodl_core.training.survey import walk_names

SCHEMA_VERSION: Final = 1
KEY: Final = "flodl.emergency"
WHAT: Final = "not a consensus: one rank's own parameters and buffers"

_TAGS: Final = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.uint16: "U16",
    torch.int16: "I16", torch.uint32: "U32", torch.int32: "I32", torch.uint64: "U64",
    torch.int64: "I64", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32",
    torch.float64: "F64", torch.complex64: "C64",
}  # fmt: skip
_PAIRS: Final = {torch.complex128: "F64", torch.complex32: "F16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWords:
    """Where the rank stood."""

    error: str
    """Why it takes the controller for gone."""
    version: int
    """The consensus that it adopted last."""
    global_step: int
    epoch: int | None
    samples_since_commit: int
    """Drawn since that consensus: what these parameters are ahead of it by."""
    batches: int
    """Of this rank since it began."""


def write_emergency(seat: Seat, model: nn.Module, words: LastWords) -> Path:
    """Write both files.

    Args:
        seat: the rank that writes.
        model: as it is now; values that are not finite are written as well.
        words: where it stands.

    Returns:
        The file of the parameters.

    Raises:
        CheckpointError: the system refused.
    """
    spec = seat.envelope.spec
    base = Path(f"{spec.save_path}.rank{seat.rank}.emergency")
    path = base.with_name(f"{base.name}.safetensors")
    entries, left_out = _entries(model)
    with writing_whole(path) as file:
        write_weights(file, entries, metadata={KEY: WHAT})
    record = {
        "schema_version": SCHEMA_VERSION,
        "what": WHAT,
        "is_consensus": False,
        "reason": SaveReason.CONTROLLER_LOST.value,
        "run_id": spec.run_id,
        "rank": int(seat.rank),
        "world_size": seat.envelope.world_size,
        "host": seat.host.host,
        "device": seat.device_name,
        **asdict(words),
        "file": path.name,
        "sha256": file.digest,
        "nbytes": file.nbytes,
        "left_out": left_out,
        "unix_time_secs": int(datetime.fromisoformat(clock.utc_iso()).timestamp()),
    }
    with writing_whole(base.with_name(f"{base.name}.json")) as told:
        told.write(json.dumps(record, indent=2).encode() + b"\n")
    return path


def _entries(model: nn.Module) -> tuple[list[TensorEntry], list[str]]:
    """Return every tensor of the state dict, the widest first, and the names that no file takes."""
    entries: dict[str, TensorEntry] = {}
    left_out: list[str] = []
    for named in walk_names(model):
        entry = _entry(named.name, named.tensor.detach())
        if entry is None:
            left_out.append(named.name)
        else:
            entries[named.name] = entry
    return sorted(entries.values(), key=lambda one: (-one.itemsize, one.name)), left_out


def _entry(name: str, tensor: torch.Tensor) -> TensorEntry | None:
    plain = tensor.resolve_conj().resolve_neg()
    pair = _PAIRS.get(plain.dtype)
    tag = pair or _TAGS.get(plain.dtype)
    if tag is None:
        return None
    real = torch.view_as_real(plain) if pair else plain

    def pieces() -> Iterator[np.ndarray[Any, Any]]:
        """Copy one tensor at a time to the CPU, in C order."""
        if not real.numel():
            return
        flat = real.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        for start in range(0, flat.size, PIECE_ELEMENTS):
            yield flat[start : start + PIECE_ELEMENTS]

    return TensorEntry(
        name=name,
        tag=tag,
        itemsize=real.element_size(),
        shape=tuple(real.shape),
        complex_dtype=dtype_name(plain.dtype) if pair else None,
        pieces=pieces,
    )
