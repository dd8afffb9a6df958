"""On a GPU: frozen parameters whose values change are noticed, with one wait."""

import pytest
import torch
from torch import nn
from training_models import laid_out

from flodl_core.training.frozen import FrozenWatch

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(180),
]
WIDE = 5_000_000


class Big(nn.Module):
    """Frozen parameters beside one that is trained."""

    def __init__(self):
        super().__init__()
        self.own = nn.Parameter(torch.zeros(3))
        self.base = nn.Parameter(torch.randn(WIDE), requires_grad=False)
        self.teacher = nn.Parameter(torch.randn(7), requires_grad=False)


@pytest.mark.parametrize("place", [0, WIDE // 2, WIDE - 1])
@pytest.mark.parametrize("is_kept", [True, False], ids=["compared", "summed"])
def test_one_value_in_millions_is_noticed_and_nothing_else(is_kept, place):
    layout, _ = laid_out(Big())
    region = layout.region.cuda()
    offsets = {one.segment.name: one.segment.offset for one in layout.params}
    watch = FrozenWatch(layout, region, region.clone() if is_kept else None)
    watch.begin()
    watch.look()
    watch.flag()
    assert len(layout.untrained()) == 2
    at = offsets["base"] + place
    region[at] = torch.nextafter(region[at], torch.tensor(9.0, device="cuda"))
    watch.look()
    watch.flag()
    assert [layout.params[k].segment.name for k in layout.untrained()] == ["teacher"]


@pytest.mark.parametrize("is_kept", [True, False], ids=["compared", "summed"])
def test_looking_waits_for_nothing(is_kept):
    layout, _ = laid_out(Big())
    region = layout.region.cuda()
    watch = FrozenWatch(layout, region, region.clone() if is_kept else None)
    watch.begin()
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    torch.cuda._sleep(2_000_000_000)
    watch.look()
    done.record()
    assert not done.query()
    watch.flag()
    assert len(layout.untrained()) == 2
