"""Threads of ours pin memory while the job records a CUDA graph in torch's own default mode."""

import threading

import pytest
import torch

from flodl_core.planes.nccl.device_thread import enter_device

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

DEVICE = torch.device("cuda", 0)
RECORDINGS = 200


class Pinner:
    """A thread that pins memory, gives it to a copy and lets it go, until it is ended."""

    def __init__(self, enter):
        self.pinned, self.error = 0, None
        self._enter, self._is_over = enter, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join(60)

    def _run(self):
        self._enter(DEVICE)
        stream = torch.cuda.Stream(DEVICE)
        size = 1 << 12
        while not self._is_over.is_set():
            try:
                with torch.cuda.stream(stream):
                    held = torch.empty(size, device="cpu", pin_memory=True)
                    held.to(DEVICE, non_blocking=True)
                self.pinned += 1
                size = size + 4096 if size < 1 << 22 else 1 << 12
            except RuntimeError as error:
                self.error = error
                return


def record(times):
    """Record a graph so often, in the default mode, while others work; return what it does."""
    total = torch.zeros(1 << 12, device=DEVICE)
    for _ in range(times):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(50):
                total += 1.0
        graph.replay()
    torch.cuda.synchronize()
    return total


def test_a_thread_that_entered_the_device_neither_fails_nor_spoils_a_recording():
    with Pinner(enter_device) as pinner:
        total = record(RECORDINGS)
    assert pinner.error is None
    assert pinner.pinned > 0
    assert torch.equal(total, torch.full_like(total, 50.0 * RECORDINGS))


def test_a_device_that_is_no_gpu_is_let_be():
    enter_device(torch.device("cpu"))
    assert torch.cuda.current_device() == DEVICE.index
