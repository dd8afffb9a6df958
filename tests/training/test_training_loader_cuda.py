"""On a GPU: batches come in pinned memory, and the same bits whoever read them."""

import pytest
import torch
from chancy_job import SAMPLES, Chancy, collate
from test_training_batch_codec import same
from test_training_loader_pool import JOB, Pool
from test_training_read_ahead import PLACES, Bench, read_at_once
from test_training_worker_loader import with_workers
from training_cohort import MemoryLog

from flodl_core.training.batches import move_batch
from flodl_core.training.generator_turns import GeneratorTurns
from flodl_core.training.read_ahead import OwnReader
from flodl_core.training.samples import PassOrder, SampleReader

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.timeout(180),
]
GPU = torch.device("cuda:0")


class GpuBench(Bench):
    def __init__(self):
        super().__init__()
        self.loader.close()
        self.turns = GeneratorTurns()
        self.own = OwnReader(
            SampleReader(Chancy(), collate, seed=3, n_samples=SAMPLES),
            PassOrder(SAMPLES, 3),
            turns=self.turns,
            device=GPU,
            log=MemoryLog(),
        )
        self.loader = type(self.loader)(self.own, seed=3, turns=self.turns)


def tensors(batch):
    return [batch["noise"], batch["plain"], batch["mixed"]]


def test_what_is_read_ahead_in_the_rank_lies_in_pinned_memory():
    with GpuBench() as bench:
        bench.loader.expect(PLACES[:2])
        bench.idle_until_read(*PLACES[:2])
        batch = bench.loader.fetch(PLACES[0], PLACES[1:2])
        assert all(tensor.is_pinned() for tensor in tensors(batch))
        same(batch, read_at_once(PLACES[0]))
        moved = move_batch(bench.loader.fetch(PLACES[1]), GPU)
        torch.cuda.synchronize()
        same(move_batch(moved, torch.device("cpu")), read_at_once(PLACES[1]))


def test_what_workers_read_lies_in_pinned_memory():
    with Pool(2, device=GPU) as pool:
        for number, place in enumerate(PLACES):
            batch = pool.take(place, PLACES[number + 1 : number + 1 + pool.depth])
            assert all(tensor.is_pinned() for tensor in tensors(batch))
            moved = move_batch(batch, GPU)
            del batch
            torch.cuda.synchronize()
            same(move_batch(moved, torch.device("cpu")), read_at_once(place))


def test_a_rank_on_a_gpu_ends_with_the_same_bits_whoever_read_its_samples():
    assert JOB.exists()
    ends = []
    for workers in (0, 1, 2):
        with with_workers(workers, devices=("cuda:0",)) as cohort:
            cohort.meet()
            cohort.train_epoch(0)
            cohort.train_epoch(1)
            model = cohort.model(0)
            assert next(model.parameters()).is_cuda
            ends.append({k: v.cpu().clone() for k, v in model.state_dict().items()})
            cohort.finish()
    for end in ends[1:]:
        assert all(torch.equal(end[name], ends[0][name]) for name in end)
