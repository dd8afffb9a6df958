"""What a rank says of its device, with a device and without one."""

import pytest
import torch

from flodl_core.ids import Rank
from flodl_core.messages.timing import ResourceSample
from flodl_core.training.channel import RankChannel
from flodl_core.training.device_use import DeviceWatch, sample_device


def test_a_rank_without_a_gpu_says_nothing():
    channel = RankChannel(Rank(3))
    watch = DeviceWatch(channel, "cpu:0", every_s=0.001)
    watch.start()
    watch.stop()
    assert channel.drain() == []


def test_a_device_that_cannot_be_asked_is_a_sample_without_numbers():
    gone = torch.device("cuda:63")
    assert sample_device(Rank(3), gone) == ResourceSample(rank=Rank(3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_rank_with_a_gpu_says_how_much_of_it_is_used():
    held = torch.ones(64 * 2**20, device="cuda:0")
    sample = sample_device(Rank(3), held.device)
    assert sample.vram_total_bytes > sample.vram_used_bytes >= held.numel() * 4
    assert 0 <= sample.gpu_percent <= 100
    channel = RankChannel(Rank(3))
    watch = DeviceWatch(channel, "cuda:0", every_s=0.05)
    watch.start()
    torch.cuda.synchronize()
    watch._is_over.wait(0.5)
    watch.stop()
    samples = [one for one in channel.drain() if isinstance(one, ResourceSample)]
    assert samples
    assert samples[0].vram_total_bytes == sample.vram_total_bytes
