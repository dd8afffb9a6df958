"""On a GPU: a batch is copied while the one before is computed, and is whole when it is used."""

import pytest
import torch
from test_training_worker import points_job
from training_cohort import Cohort

from flodl_core.ids import ExitCode
from flodl_core.training.batch_mover import BatchMover
from flodl_core.training.losses import LateLoss, LossReader

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(180),
]
GPU = torch.device("cuda:0")
LONG_CYCLES = 2_000_000_000


def test_a_copy_does_not_wait_for_the_batch_before():
    mover = BatchMover(GPU)
    mover.move(torch.zeros(4).pin_memory())
    busy = torch.cuda.Event()
    torch.cuda._sleep(LONG_CYCLES)
    busy.record()
    there = mover.move({"x": torch.arange(1 << 20).pin_memory(), "name": "one"})
    mover._stream.synchronize()
    assert not busy.query(), "the copy waited for the computation"
    doubled = there["x"] * 2
    torch.cuda.synchronize()
    assert torch.equal(doubled.cpu(), 2 * torch.arange(1 << 20))
    assert there["name"] == "one"


def test_values_are_whole_where_memory_is_reused_at_once():
    mover = BatchMover(GPU)
    sums = []
    for number in range(60):
        batch = mover.move(torch.full((1 << 20,), float(number)).pin_memory())
        torch.cuda._sleep(100_000)
        sums.append(batch.mean())
        del batch
    assert [float(value) for value in sums] == [float(number) for number in range(60)]


def test_what_is_on_the_gpu_already_stays_what_it_is():
    tensor = torch.ones(3, device=GPU)
    assert BatchMover(GPU).move([tensor, 5])[0] is tensor


def test_a_loss_on_the_gpu_comes_late_and_right_and_its_time_is_the_gpus():
    reader = LossReader()
    reader.begin(torch.zeros((), device=GPU)).read()
    torch.cuda._sleep(LONG_CYCLES // 10)
    first = reader.begin(torch.full((1, 1), 0.75, dtype=torch.bfloat16, device=GPU))
    assert isinstance(first, LateLoss)
    torch.cuda._sleep(LONG_CYCLES // 10)
    second = reader.begin(torch.tensor(float("inf"), device=GPU))
    waited = first.read()
    torch.cuda.synchronize()
    asked = second.read()
    assert (waited.value, asked.value) == (0.75, None)
    late = reader.begin(torch.tensor(2.0, device=GPU))
    torch.cuda.synchronize()
    assert late.read().at >= asked.at > waited.at


def test_a_rank_on_a_gpu_tells_each_batch_once_with_its_loss():
    with Cohort(points_job(), 1, devices=("cuda:0",)) as cohort:
        cohort.meet()
        cohort.send_window(6)
        cohort.until_told(6)
        cohort.reduce(6)
        assert cohort.finish() == [ExitCode.DONE]
    rows = cohort.rows()
    assert [row.step_count for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(row.loss > 0 for row in rows)
