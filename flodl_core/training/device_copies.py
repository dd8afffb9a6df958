"""Whole regions between a GPU and shared host memory, as fast as the bus is.

The driver copies from and to pages that it holds still; the shared segments of a host are
made known to it once. Memory that is mapped read-only may be refused by a driver: then
values go through two pinned pieces, one of which is filled while the other travels.
"""

import contextlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from flodl_core.reduce.buckets import Run
from flodl_core.training.placement import F32

PIECE_VALUES: Final = 4 << 20
"""f32 values of a pinned piece: 16 MiB."""

_READ_ONLY: Final = 8
"""cudaHostRegisterReadOnly."""


class DeviceCopies:
    """Copies of one rank's regions; it belongs to the training thread.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pinned: dict[int, bool] = {}
        self._pieces: tuple[torch.Tensor, ...] = ()

    def download(self, source: torch.Tensor, target: F32) -> None:
        """Copy a region from the device; returns when it is there.

        Args:
            source: flat f32, on the device.
            target: as long, in host memory; overwritten.
        """
        is_pinned = self._pin(target, flags=0)
        torch.from_numpy(target).copy_(source, non_blocking=is_pinned)
        torch.cuda.current_stream(self._device).synchronize()

    def upload(self, source: F32, target: torch.Tensor, spans: Sequence[Run]) -> None:
        """Copy runs of a region to the device; returns when the source may change again.

        Args:
            source: in host memory; only read.
            target: as long, flat f32, on the device; the runs are overwritten.
            spans: what is copied.
        """
        is_pinned = self._pin(source, flags=_READ_ONLY)
        for offset, length in spans:
            values, place = source[offset : offset + length], target[offset : offset + length]
            if is_pinned:
                place.copy_(_tensor_over(values), non_blocking=True)
            else:
                self._upload_in_pieces(values, place)
        torch.cuda.current_stream(self._device).synchronize()

    def _upload_in_pieces(self, source: F32, target: torch.Tensor) -> None:
        if not self._pieces:
            self._pieces = tuple(
                torch.empty(PIECE_VALUES, dtype=torch.float32, device="cpu", pin_memory=True)
                for _ in range(2)
            )
        stream = torch.cuda.current_stream(self._device)
        ends = [torch.cuda.Event() for _ in self._pieces]  # type: ignore[no-untyped-call]
        for index, start in enumerate(range(0, source.size, PIECE_VALUES)):
            turn = index % len(self._pieces)
            ends[turn].synchronize()
            values = source[start : start + PIECE_VALUES]
            piece = self._pieces[turn][: values.size]
            np.copyto(piece.numpy(), values)
            target[start : start + values.size].copy_(piece, non_blocking=True)
            ends[turn].record(stream)
        stream.synchronize()

    def _pin(self, values: F32, *, flags: int) -> bool:
        """Make memory known to the driver, once; False where it refuses."""
        if values.size == 0:
            return False
        at = values.ctypes.data
        if at not in self._pinned:
            code = torch.cuda.cudart().cudaHostRegister(  # type: ignore[no-untyped-call]
                at, values.nbytes, flags
            )
            self._pinned[at] = int(code) == 0
            if not self._pinned[at]:
                self._forget_refusal()
        return self._pinned[at]

    def _forget_refusal(self) -> None:
        """Take the driver's error off its stack, where the next launch would find it."""
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=self._device)

    def close(self) -> None:
        """Have the driver forget the memory."""
        for at, is_pinned in self._pinned.items():
            if is_pinned:
                torch.cuda.cudart().cudaHostUnregister(at)  # type: ignore[no-untyped-call]
        self._pinned.clear()


def _tensor_over(values: F32) -> torch.Tensor:
    """Return a tensor over memory that may be read-only; it is only read."""
    interface = values.__array_interface__
    address, shape = interface["data"][0], values.shape
    writable: dict[str, object] = {**interface, "data": (address, False), "shape": shape}

    class _View:
        __array_interface__ = writable

    return torch.from_numpy(np.asarray(_View()))
