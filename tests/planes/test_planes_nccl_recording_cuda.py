"""What is repeated on a GPU is recorded once; a recording that fails does no harm."""

import gc

import pytest
import torch

from flodl_core.planes.nccl.device import DeviceFabric

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

RUNS = 6
DEVICE = torch.device("cuda", 0)


def run(fabric, work, times=RUNS):
    repeated = fabric.repeated(work)
    for _ in range(times):
        with fabric.syncing():
            repeated()
    torch.cuda.synchronize()
    return repeated


def check_that_torch_is_well():
    """Kernels launch, results are right, and memory that a second stream used comes back."""
    ones = torch.ones(1000, device=DEVICE)
    assert int((ones + ones).sum()) == 2000
    assert torch.equal(ones, torch.ones_like(ones))
    other = torch.cuda.Stream(DEVICE)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats(DEVICE)["active_bytes.all.current"]
    for _ in range(8):
        lent = torch.ones(1 << 22, device=DEVICE)
        with torch.cuda.stream(other):
            lent.mul_(2)
        lent.record_stream(other)
        del lent
        torch.cuda.synchronize()
    torch.ones(1, device=DEVICE)
    assert torch.cuda.memory_stats(DEVICE)["active_bytes.all.current"] <= before + (1 << 24)
    assert torch.rand(4, device=DEVICE).isfinite().all()


def test_what_is_recorded_does_the_same_each_time():
    fabric = DeviceFabric(DEVICE)
    total = torch.zeros(1000, device=DEVICE)
    calls = []

    def work():
        calls.append(1)
        total.add_(1.0)

    run(fabric, work)
    assert total.tolist() == [RUNS] * 1000
    assert len(calls) == 3  # the third is the recording
    assert fabric.why_not_recorded == ""
    check_that_torch_is_well()


def test_work_that_waits_for_the_gpu_is_not_recorded_and_still_done():
    fabric = DeviceFabric(DEVICE)
    total = torch.zeros(1000, device=DEVICE)

    def work():
        total.add_(1.0)
        torch.cuda.synchronize()

    run(fabric, work)
    # what the failed recording enqueued was not done; it was run after it
    assert total.tolist() == [RUNS] * 1000
    assert "capturing" in fabric.why_not_recorded
    check_that_torch_is_well()
    run(fabric, work)
    assert total.tolist() == [2 * RUNS] * 1000
    check_that_torch_is_well()


def test_an_old_graph_that_is_thrown_away_meanwhile_does_no_harm():
    fabric = DeviceFabric(DEVICE)
    total = torch.zeros(1000, device=DEVICE)
    kept = [run(fabric, lambda: total.add_(0.0))]

    def work():
        total.add_(1.0)
        kept.clear()

    run(fabric, work)
    assert total.tolist() == [RUNS] * 1000
    check_that_torch_is_well()


def test_garbage_is_not_collected_in_a_recording():
    # pinned memory that goes back while its stream records leaves an event that nobody can ask
    fabric = DeviceFabric(DEVICE)
    total = torch.zeros(1000, device=DEVICE)
    garbage = {"graph": run(fabric, lambda: total.add_(0.0)), "numbers": fabric.mirror(3)}
    with fabric.syncing():
        garbage["numbers"].send()
        garbage["numbers"].fetch()
    garbage["itself"] = garbage
    thrown_away = [garbage]
    del garbage
    made = []

    def work():
        total.add_(1.0)
        if len(made) == 2:
            thrown_away.clear()
        made.append([[] for _ in range(5000)])

    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        run(fabric, work)
    finally:
        gc.set_threshold(*thresholds)
    assert fabric.why_not_recorded == ""
    assert total.tolist() == [RUNS] * 1000
    assert gc.isenabled()
    check_that_torch_is_well()
