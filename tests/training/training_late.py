"""A GPU with a clock of its own for losses that are read late, and one for whole ranks."""

import torch

from flodl_core.training.losses import LossReader
from flodl_core.training.worker import RankWorker


class LateGpu:
    """Computes batches one after the other, each as long as it is told.

    Attributes:
        now: the host's clock.
    """

    def __init__(self, *, drift=1.0):
        self.now = 0.0
        self.free_at = 0.0
        self.drift = drift
        self.events = []

    def event(self):
        self.events.append(Event(self))
        return self.events[-1]

    def gives(self, gpu_s, *, since=None):
        """The newest batch takes so long, from when the GPU has it and nothing else to do."""
        self.free_at = max(self.free_at, self.now if since is None else since) + gpu_s
        self.events[-1].done_at = self.free_at


class Event:
    def __init__(self, gpu):
        self.gpu, self.done_at = gpu, None

    def record(self):
        self.done_at = max(self.gpu.free_at, self.gpu.now)

    def query(self):
        return self.done_at <= self.gpu.now

    def synchronize(self):
        self.gpu.now = max(self.gpu.now, self.done_at)

    def elapsed_time(self, end_event, /):
        assert self.query()
        assert end_event.query()
        assert self.gpu.events.index(self) < self.gpu.events.index(end_event)
        return (end_event.done_at - self.done_at) * 1e3 * self.gpu.drift


class LateReader(LossReader):
    """Reads the loss of each step as if it were a GPU's; keeps what happened in its order."""

    def __init__(self, waits, order, *, fails_at=None, is_done=None):
        super().__init__(waits, new_event=lambda: HostEvent(order, fails_at, is_done))
        self.order = order

    def begin(self, answer):
        self.order.append("begun")
        return self.begin_late(torch.as_tensor(answer, dtype=torch.float64).clone())


class HostEvent:
    """Done when it is waited for and not before, unless it is said to be."""

    def __init__(self, order, fails_at, is_done):
        self.order, self.fails_at, self.is_done = order, fails_at, is_done

    def record(self):
        pass

    def query(self):
        return self.is_done is not None and self.is_done.is_set()

    def elapsed_time(self, _end_event, /):
        return 0.0

    def synchronize(self):
        self.order.append("read")
        if self.order.count("read") == self.fails_at:
            raise RuntimeError("the device gave up")


def late_worker(order, **options):
    """Return a kind of worker that reads every loss late."""

    class LateWorker(RankWorker):
        def new_losses(self, waits):
            return LateReader(waits, order, **options)

    return LateWorker
