"""How much of its GPU a rank uses, told to the coordinator every two seconds.

What it is: a small thread that asks the driver and posts a ResourceSample. It begins when
the training has begun to use the device, and never makes a context of its own.
What it is not: a measurement of training; a driver that does not answer is no sample.
Who drives it: the rank's process starts it before training and stops it after.
"""

import contextlib
import threading

import torch

from flodl_core.ids import Rank
from flodl_core.messages.timing import ResourceSample
from flodl_core.planes.nccl.device_thread import enter_device
from flodl_core.training.channel import RankChannel
from flodl_core.units import Seconds

SAMPLE_EVERY_S: Seconds = 2.0


class DeviceWatch:
    """Samples one device from `start` to `stop`; does nothing for a device that is no GPU.

    Args:
        channel: takes the samples.
        device: of the rank, such as cuda:0.
        every_s: from sample to sample.
    """

    def __init__(
        self, channel: RankChannel, device: str, *, every_s: Seconds = SAMPLE_EVERY_S
    ) -> None:
        self._channel = channel
        self._device = torch.device(device)
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="device-watch", daemon=True)

    def start(self) -> None:
        """Begin to sample, if the device can be asked."""
        if self._device.type == "cuda":
            self._thread.start()

    def stop(self) -> None:
        """End the thread; a driver that hangs does not hold the caller."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                enter_device(self._device)  # not before: it begins to use the device
                self._channel.post(sample_device(self._channel.rank, self._device))


def sample_device(rank: Rank, device: torch.device) -> ResourceSample:
    """Return what the driver says of a GPU, all its processes together; None where it does not."""
    used = total = percent = None
    # The driver's library has errors of its own kinds, and none of them may end a training.
    with contextlib.suppress(Exception):
        free, total = torch.cuda.mem_get_info(device)
        used = total - free
    with contextlib.suppress(Exception):
        percent = float(torch.cuda.utilization(device))
    return ResourceSample(
        rank=rank, gpu_percent=percent, vram_used_bytes=used, vram_total_bytes=total
    )
