"""A thread of ours that uses a GPU beside the training thread.

A job may record a CUDA graph in its step, by default in CUDA's mode "global": while that
lasts, a call of any thread that could spoil a recording fails, and spoils it, such as the one
that pins memory. A thread says for itself that its calls have nothing to do with what others
record (cudaThreadExchangeStreamCaptureMode of the CUDA runtime); torch has no name for that.
"""

import ctypes
from typing import Final

import torch

_EXCHANGE: Final = "cudaThreadExchangeStreamCaptureMode"
_THREAD_LOCAL: Final = 1
"""cudaStreamCaptureModeThreadLocal of the CUDA runtime."""


def enter_device(device: torch.device) -> None:
    """Make a GPU the calling thread's own, and its calls no business of others' recordings.

    Does nothing for a device that is no GPU.
    """
    if device.type != "cuda":
        return
    torch.cuda.set_device(device)
    version = torch.version.cuda
    if version is None:
        return
    try:
        exchange = ctypes.CDLL(f"libcudart.so.{version.split('.')[0]}")[_EXCHANGE]
    except (OSError, AttributeError):  # a torch that has the runtime built in
        return
    exchange(ctypes.byref(ctypes.c_int(_THREAD_LOCAL)))
