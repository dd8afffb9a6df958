"""What a rank reads ahead follows its plan: nothing lost, nothing twice, whatever cuts in."""

import threading

import pytest
import torch
from chancy_job import SAMPLES
from chancy_job import job as chancy_job
from test_training_loader_pool import JOB, is_alive, until
from test_training_worker import same_bits
from training_cohort import Cohort

from flodl_core.dispatch.permutation import Permutation
from flodl_core.ids import ExitCode, SyncOutcome
from flodl_core.messages import control
from flodl_core.messages.job import JobRef
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.messages.timing import Batches, Exiting, SnapshotReady, SyncAck
from flodl_core.training.job import TrainJob
from flodl_core.training.load import JobSource

SEED = 7
BATCH = 4
COUNT = 96
CEILING_S = 20.0


class Indices:
    """Samples that are their own index; notes each read."""

    def __init__(self):
        self.reads = []

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        self.reads.append(index)
        return torch.tensor(index)


class Gated:
    """One rank whose steps each wait for leave; it keeps what it trained."""

    def __init__(self, **changes):
        self.data = Indices()
        self.trained = []
        self.leave = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)
        options = {
            "model": lambda: torch.nn.Linear(1, 1),
            "optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
            "dataset": lambda: self.data,
            "step": self.step,
            "batch_size": BATCH,
            **changes,
        }
        self.cohort = Cohort(TrainJob(**options), 1, seed=SEED)
        self.data.reads.clear()

    def step(self, ctx, batch):
        self.trained += batch.tolist()
        self.entered.release()
        assert self.leave.acquire(timeout=CEILING_S)
        ctx.optimizer.zero_grad()
        ctx.model(torch.ones(1, 1)).sum().backward()
        ctx.optimizer.step()
        return 1.0

    def __enter__(self):
        self.cohort.__enter__()
        self.cohort.meet()
        return self

    def __exit__(self, *error):
        for _ in range(COUNT):
            self.leave.release()
        self.cohort.__exit__(*error)

    def tell(self, *messages):
        for message in messages:
            self.cohort.send(0, message)

    def let(self, steps):
        for _ in range(steps):
            assert self.entered.acquire(timeout=CEILING_S)
            self.leave.release()

    def in_step(self):
        assert self.entered.acquire(timeout=CEILING_S)

    def cycle_ends(self, cycle, **update):
        """Wait for the rank's ack of a cycle and release it."""
        ready = self.cohort.collect(SnapshotReady, [0])[0]
        while ready.cycle != cycle:
            ready = self.cohort.collect(SnapshotReady, [0])[0]
        ack = self.cohort.collect(SyncAck, [0])[0]
        assert ack.cycle == cycle
        self.tell(control.Update(version=cycle, cycle=cycle, **update), control.SetGlobalStep(n=0))
        return ready, ack


def plan(offset, size, *, window=100):
    return control.EpochPlan(epoch=0, offset=offset, size=size, window_batches=window)


def ids(offset, size):
    return Permutation(COUNT, SEED, 0).ids(offset, size).tolist()


def test_a_cut_in_mid_window_ends_it_after_the_batch_in_hand_and_loses_nothing_of_the_plan():
    with Gated() as rank:
        rank.tell(control.StartEpoch(plan=plan(0, 32)))
        rank.let(2)
        rank.in_step()
        rank.tell(control.Cut(cycle=1))
        rank.leave.release()
        ready, ack = rank.cycle_ends(1, next_plan=plan(12, 8))
        assert (ready.n, ready.samples) == (3, 12)
        assert (ack.outcome, ack.samples) == (SyncOutcome.COMMITTED, 12)
        rank.let(2)
        rank.tell(control.RequestParams(cycle=2))
        assert rank.cycle_ends(2)[0].samples == 8
        assert rank.trained == ids(0, 20)
        assert rank.cohort.finish() == [ExitCode.DONE]


def test_a_cut_of_a_rank_that_holds_is_answered_at_once_and_the_chunk_may_go_elsewhere():
    """The batches that it had read ahead are forgotten, and another plan is trained exactly."""
    with Gated() as rank:
        rank.tell(control.StartEpoch(plan=plan(0, 32, window=1)))
        rank.let(1)
        assert until(lambda: len(rank.data.reads) == 3 * BATCH), "it reads ahead while it holds"
        rank.tell(control.Cut(cycle=1))
        assert rank.cycle_ends(1, next_plan=plan(60, 8))[0].n == 1
        rank.let(2)
        rank.tell(control.Cut(cycle=2))
        assert rank.cycle_ends(2, next_plan=plan(4, 4))[0].n == 2
        rank.let(1)
        rank.tell(control.Cut(cycle=3))
        rank.cycle_ends(3)
        assert rank.trained == ids(0, 4) + ids(60, 8) + ids(4, 4)
        rank.cohort.finish()


def test_a_cut_with_nothing_done_contributes_nothing_and_the_next_plan_counts():
    with Gated() as rank:
        rank.tell(control.Cut(cycle=1))
        ready, ack = rank.cycle_ends(1, next_plan=plan(0, 4))
        assert (ready.n, ready.samples, ack.outcome) == (0, 0, SyncOutcome.UNREALIZED)
        rank.let(1)
        rank.cohort.collect(Batches, [0])
        assert rank.trained == ids(0, 4)
        rank.cohort.finish()


def test_a_plan_that_replaces_one_and_an_extension_are_trained_as_they_are():
    with Gated() as rank:
        rank.tell(control.StartEpoch(plan=plan(0, 32)))
        rank.in_step()
        rank.tell(
            control.StartEpoch(plan=plan(40, 8)),
            control.ExtendPartition(epoch=0, offset=80, size=6),
        )
        rank.leave.release()
        rank.let(4)
        rank.tell(control.RequestParams(cycle=1))
        assert rank.cycle_ends(1)[0].samples == 4 + 8 + 6
        metrics = rank.cohort.collect(MetricsMsg, [0])[0]
        assert (metrics.batches_processed, metrics.samples_processed) == (5, 18)
        assert rank.trained == ids(0, 4) + ids(40, 8) + ids(80, 6)
        rank.cohort.finish()


def test_a_rank_that_waits_for_its_update_reads_the_next_batches_once():
    with Gated() as rank:
        rank.tell(control.StartEpoch(plan=plan(0, 16, window=1)))
        for cycle in (1, 2, 3):
            rank.let(1)
            rank.cohort.collect(Batches, [0])
            assert until(lambda c=cycle: len(rank.data.reads) >= min(16, (c + 2) * BATCH))
            rank.tell(control.RequestParams(cycle=cycle))
            rank.cycle_ends(cycle)
        rank.let(1)
        rank.cohort.collect(Batches, [0])
        assert rank.data.reads == rank.trained == ids(0, 16)
        rank.cohort.finish()


def test_the_time_of_waiting_for_data_is_told_by_the_batch_and_summed_over_the_epoch():
    slow = threading.Event()

    class Slow(Indices):
        def __getitem__(self, index):
            slow.wait(0.01)
            return super().__getitem__(index)

    data = Slow()
    with Gated(dataset=lambda: data) as rank:
        rank.tell(control.StartEpoch(plan=plan(0, 12, window=1)))
        rank.let(1)
        rows = list(rank.cohort.collect(Batches, [0])[0].rows)
        rank.tell(control.RequestParams(cycle=1))
        until(lambda: len(data.reads) >= 12)
        rank.cycle_ends(1)
        rank.let(1)
        rows += rank.cohort.collect(Batches, [0])[0].rows
        rank.tell(control.Cut(cycle=2))
        rank.cycle_ends(2)
        metrics = rank.cohort.collect(MetricsMsg, [0])[0]
        rank.cohort.finish()
    assert rows[0].data_ms >= 40
    assert rows[1].data_ms < rows[0].data_ms / 2, "it was read while the rank held"
    assert metrics.data_starve_ms == pytest.approx(sum(row.data_ms for row in rows))


@pytest.mark.parametrize("ending", ["shutdown", "raises", "leaves", "lost"])
def test_every_end_of_a_rank_ends_what_reads_for_it(ending):
    def step(ctx, batch):
        if ending == "raises":
            raise KeyError("torn")
        if ending == "leaves":
            raise SystemExit(3)
        return 1.0

    with Gated(step=step) as rank:
        reader = rank.cohort.workers[0].loader._source
        assert reader._thread.is_alive()
        rank.tell(control.StartEpoch(plan=plan(0, 4)))
        if ending == "lost":
            rank.cohort.channels[0].close("the launcher is gone")
        elif ending == "shutdown":
            rank.cohort.finish()
        else:
            rank.cohort.collect(Exiting, [0])
        rank.cohort.threads[0].join(CEILING_S)
        assert not reader._thread.is_alive()


# -- with workers ----------------------------------------------------------------------


class WithWorkers(Cohort):
    """Ranks as threads whose samples are read by processes."""

    def seat(self, rank):
        seat = super().seat(rank)
        source = JobSource(JobRef(kind="file", name="chancy_job:job", args=self.args), JOB)
        return type(seat)(
            envelope=seat.envelope, rank=rank, source=source, loader_workers=self.loader_workers
        )


def with_workers(workers, *, devices=("cpu:0",), **args):
    WithWorkers.args, WithWorkers.loader_workers = args, workers
    return WithWorkers(chancy_job(**args), len(devices), devices=devices, seed=SEED)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(180)
def test_a_rank_ends_with_the_same_bits_whoever_read_its_samples():
    """Samples, collate and step all draw from every generator."""
    ends = []
    for workers in (0, 1, 2):
        with with_workers(workers) as cohort:
            cohort.meet()
            cohort.train_epoch(0, windows=None)
            cohort.train_epoch(1)
            ends.append({k: v.clone() for k, v in same_bits(cohort).items()})
            cohort.finish()
    for end in ends[1:]:
        assert all(torch.equal(end[name], ends[0][name]) for name in end)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(180)
def test_a_rank_whose_loader_fails_says_so_and_leaves_no_process():
    with with_workers(2, fault="raises") as cohort:
        cohort.meet()
        pool = cohort.workers[0].loader._source
        cohort.send(
            0,
            control.StartEpoch(
                plan=control.EpochPlan(epoch=0, offset=0, size=SAMPLES, window_batches=100)
            ),
        )
        exiting = cohort.collect(Exiting, [0])[0]
        cohort.threads[0].join(CEILING_S)
        pids = [pool._server.pid, *(worker.pid for worker in pool._workers.values())]
    assert cohort.codes == [ExitCode.FAILED]
    assert exiting.error.startswith("ValueError: sample 40 is torn (chancy_job.py:")
    assert "in loader worker" in exiting.error
    assert until(lambda: not any(map(is_alive, pids)), 5)


def test_workers_without_a_source_of_the_job_are_our_own_mistake():
    with Cohort(chancy_job(workers=1), 1) as cohort:
        exiting = cohort.collect(Exiting, [0])[0]
    assert "no source of its job" in exiting.error
