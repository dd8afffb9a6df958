"""A loss that is on a GPU is read one batch late, and said of the batch whose it is."""

import math
import threading
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_training_worker import Points, points_job, regression_step
from training_cohort import Cohort
from training_late import LateGpu, late_worker

from flodl_core.dispatch.actions import TrainBatch
from flodl_core.errors import JobError
from flodl_core.ids import ExitCode, Mode
from flodl_core.messages import control
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.messages.timing import Batches, Exiting, SnapshotReady, SyncAck
from flodl_core.training.batch_notes import BatchNotes
from flodl_core.training.channel import RankChannel
from flodl_core.training.losses import ANCHOR_S, LossReader, ReadLoss
from flodl_core.training.scalar_sum import ScalarSum
from flodl_core.training.share_totals import ShareTotals

WINDOW, SIZE = 4, 8


# one loss


def reader_on(gpu, **more):
    return LossReader(new_event=gpu.event, now=lambda: gpu.now, **more)


def test_a_loss_on_the_host_is_there_at_once():
    reader = LossReader(now=lambda: 3.0)
    assert reader.begin(torch.tensor(0.5)) == ReadLoss(0.5, 3.0)
    assert reader.begin(2) == ReadLoss(2.0, 3.0)
    assert reader.begin(math.inf).value is None


def test_a_loss_on_a_gpu_is_waited_for_only_when_it_is_read_with_the_generators_lent():
    gpu = LateGpu()
    held = []

    @contextmanager
    def waits():
        held.append("lent")
        yield
        held.append("back")

    reader = reader_on(gpu, waits=waits)
    late = reader.begin_late(torch.tensor(0.25, requires_grad=True))
    gpu.gives(0.020)
    assert (held, gpu.now) == ([], 0.0)
    assert late.read() == ReadLoss(0.25, 0.020)
    assert held == ["lent", "back"]


def test_a_late_loss_that_is_not_finite_is_none():
    gpu = LateGpu()
    late = reader_on(gpu).begin_late(torch.tensor(float("nan"), dtype=torch.bfloat16))
    gpu.gives(0.001)
    assert late.read().value is None


@pytest.mark.parametrize("answer", [torch.ones(2), torch.tensor(1j)])
def test_what_is_no_number_is_refused_before_anything_is_waited_for(answer):
    gpu = LateGpu()
    with pytest.raises(JobError, match="step returned a tensor"):
        reader_on(gpu).begin_late(answer)
    assert gpu.events == []


def test_a_batch_that_was_done_before_we_asked_is_timed_by_the_gpu():
    gpu = LateGpu()
    reader = reader_on(gpu)
    first = reader.begin_late(torch.tensor(1.0))
    gpu.gives(0.010)
    assert first.read().at == pytest.approx(0.010)
    second = reader.begin_late(torch.tensor(1.0))
    gpu.gives(0.010)
    gpu.now += 5.0  # the host was busy with something else
    assert second.read().at == pytest.approx(0.020)


def test_a_rank_that_never_waits_compares_the_clocks_once_in_a_while():
    gpu = LateGpu()
    reader, kept, asked = reader_on(gpu), None, 0
    for number in range(100):
        late = reader.begin_late(torch.tensor(1.0))
        gpu.gives(0.010)
        done_at, gpu.now = gpu.free_at, gpu.now + 0.500
        if kept is not None:
            assert kept[0].read().at == pytest.approx(kept[1])
        kept = (late, done_at)
        asked = len(gpu.events) - (number + 1)
    assert asked == pytest.approx(100 * 0.500 / ANCHOR_S, abs=1)


def test_a_clock_that_runs_fast_names_no_moment_to_come():
    gpu = LateGpu(drift=1.5)
    reader = reader_on(gpu)
    first = reader.begin_late(torch.tensor(1.0))
    gpu.gives(0.010)
    first.read()
    second = reader.begin_late(torch.tensor(1.0))
    gpu.gives(0.010)
    gpu.now = gpu.free_at + 0.001
    assert second.read().at == gpu.now


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.floats(0.0, 0.05), st.floats(0.001, 0.05)), min_size=1, max_size=12),
    st.floats(0.8, 1.2),
)
def test_moments_never_go_back_and_are_never_to_come(batches, drift):
    gpu = LateGpu(drift=drift)
    reader, kept, found = reader_on(gpu), None, []
    for host_s, gpu_s in batches:
        gpu.now += host_s
        late = reader.begin_late(torch.tensor(1.0))
        gpu.gives(gpu_s)
        if kept is not None:
            found.append((kept.read().at, gpu.now))
        kept = late
    found.append((kept.read().at, gpu.now))
    moments = [at for at, _ in found]
    assert all(at <= now for at, now in found)
    assert moments == sorted(moments)


# what is said of batches


class Told:
    """Notes of batches whose times are given; rows as the bridge would send them."""

    def __init__(self):
        self.gpu = LateGpu()
        self.reader = reader_on(self.gpu)
        self.channel = RankChannel(0)
        self.totals = ShareTotals()
        self.notes = BatchNotes(self.channel, self.totals)

    def batch(self, *, fetch_s, launch_s, gpu_s, loss=1.0, scalars=None):
        """Fetch, launch, and let the GPU compute for so long once it comes to it."""
        began = self.gpu.now
        self.gpu.now += fetch_s
        have_data = self.gpu.now
        self.gpu.now += launch_s
        late = self.reader.begin_late(torch.tensor(loss))
        self.gpu.gives(gpu_s, since=have_data)
        self.notes.add(
            TrainBatch(0, 0, SIZE), late, began=began, have_data=have_data, scalars=scalars or {}
        )

    def rows(self):
        return [row for m in self.channel.drain() if isinstance(m, Batches) for row in m.rows]


def test_nothing_is_said_of_a_batch_before_the_next_was_given_to_the_gpu():
    told = Told()
    told.batch(fetch_s=0.001, launch_s=0.002, gpu_s=0.020, loss=5.0)
    assert (told.rows(), told.channel.step_count) == ([], 0)
    told.batch(fetch_s=0.001, launch_s=0.002, gpu_s=0.020, loss=4.0)
    assert [(row.step_count, row.loss) for row in told.rows()] == [(1, 5.0)]
    told.notes.settle()
    assert [(row.step_count, row.loss) for row in told.rows()] == [(2, 4.0)]
    told.notes.settle()
    assert told.rows() == []


def test_a_gpu_that_is_never_idle_takes_its_own_time_a_batch_and_waits_for_no_data():
    told = Told()
    for _ in range(5):
        told.batch(fetch_s=0.003, launch_s=0.004, gpu_s=0.020)
    told.notes.settle()
    first, *rest = told.rows()
    assert (first.data_ms, first.since_previous_ms) == (pytest.approx(3.0), 0.0)
    for row in rest:
        assert row.batch_ms == pytest.approx(20.0)
        assert row.since_previous_ms == pytest.approx(20.0)
        assert row.data_ms == pytest.approx(0.0)


def test_a_gpu_that_waits_for_samples_is_said_to():
    told = Told()
    for _ in range(8):
        told.batch(fetch_s=0.050, launch_s=0.001, gpu_s=0.010)
    told.notes.settle()
    for row in told.rows()[3:]:  # the clocks were compared behind the second
        # of 50 ms of reading 9 pass while the GPU still computes: it is given the batch at 1 ms
        assert row.data_ms == pytest.approx(41.0)
        assert row.batch_ms == pytest.approx(10.0)
        assert row.since_previous_ms == pytest.approx(51.0)


def test_a_wait_for_work_is_no_part_of_a_batch_that_is_read_late():
    told = Told()
    told.batch(fetch_s=0.001, launch_s=0.001, gpu_s=0.010)
    told.notes.settle()
    told.gpu.now += 7.0
    told.notes.wait()
    told.batch(fetch_s=0.001, launch_s=0.001, gpu_s=0.010)
    told.batch(fetch_s=0.001, launch_s=0.001, gpu_s=0.010)
    told.notes.settle()
    assert [round(row.since_previous_ms) for row in told.rows()] == [0, 11, 10]


def test_what_the_step_noted_goes_with_its_batch():
    told = Told()
    told.batch(fetch_s=0, launch_s=0, gpu_s=0.01, scalars={"seen": ScalarSum(3.0, 4.0)})
    told.batch(fetch_s=0, launch_s=0, gpu_s=0.01, scalars={"seen": ScalarSum(1.0, 2.0)})
    told.notes.settle()
    report = told.totals.report(0, 0, told.gpu.now)
    assert report.scalars == {"seen": (4.0, 6.0)}
    assert (report.batches_processed, report.samples_processed) == (2, 2 * SIZE)


# a whole rank


def train_windows(*, windows=2, **options):
    """Train windows of several batches on two ranks; return the cohort and its reports."""
    with Cohort(points_job(), 2, **options) as cohort:
        cohort.meet()
        for window in range(windows):
            for rank in (0, 1):
                offset = (2 * window + rank) * WINDOW * SIZE
                cohort.send_window(WINDOW, rank=rank, offset=offset)
            for rank in (0, 1):
                cohort.until_told((window + 1) * WINDOW, rank)
            cohort.reduce(2 * WINDOW)
        metrics = cohort.collect(MetricsMsg, cohort.alive)
        assert cohort.finish() == [ExitCode.DONE] * 2
    return cohort, metrics


def test_late_losses_are_those_of_their_batches_and_no_sample_is_told_twice():
    at_once, _ = train_windows()
    order = []
    late, metrics = train_windows(worker=late_worker(order))
    for rank in (0, 1):
        expected = [(row.step_count, row.samples, row.loss) for row in at_once.rows(rank)]
        assert [(r.step_count, r.samples, r.loss) for r in late.rows(rank)] == expected
        assert len(expected) == 2 * WINDOW
        assert metrics[rank].samples_processed == 2 * WINDOW * SIZE
    assert order.count("read") == order.count("begun") == 2 * 2 * WINDOW


def test_a_rank_gives_the_gpu_the_next_batch_before_it_reads_a_loss():
    order = []
    with Cohort(points_job(), 1, worker=late_worker(order)) as cohort:
        cohort.meet()
        cohort.send_window(4)
        cohort.until_told(4)
        assert order == ["begun", *["begun", "read"] * 3, "read"]
        cohort.finish()


def train_and_interrupt(mode):
    """Train six batches on one rank, with a call for an average during the fourth."""
    interrupting = threading.Event()

    def step(ctx, batch):
        if len(order) >= 5 and not interrupting.is_set():  # begun, begun, read, begun, read
            interrupting.set()
            cohort.send(0, control.RequestParams(cycle=1))
        return regression_step(ctx, batch)

    order = []
    job = points_job(step=step)
    with Cohort(job, 1, worker=late_worker(order), mode=mode) as cohort:
        cohort.meet()
        cohort.send_window(6, full_at=0 if mode is Mode.CPU_ASYNC else 6)
        cohort.send(0, control.SetGlobalStep(n=0))
        cohort.collect(SyncAck, [0])
        cohort.cycle += 1
        cohort.release()
        cohort.until_told(6)
        cohort.finish()
    return cohort


@pytest.mark.parametrize("mode", [Mode.CPU_CADENCE, Mode.CPU_ASYNC])
def test_a_batch_is_told_before_the_snapshot_that_holds_it_whenever_that_is_called_for(mode):
    cohort = train_and_interrupt(mode)
    said = [m for who, m in cohort.seen if who == 0]
    at = next(i for i, m in enumerate(said) if isinstance(m, SnapshotReady) and m.cycle == 1)
    before = [row for m in said[:at] if isinstance(m, Batches) for row in m.rows]
    assert said[at].n == len(before) >= 3
    assert said[at].samples == len(before) * SIZE


def test_a_batch_that_is_done_is_told_of_although_the_next_one_fails():
    is_done = threading.Event()

    def step(ctx, batch):
        if ctx.steps_applied == 2:
            is_done.set()
            raise ValueError("no third batch")
        return regression_step(ctx, batch)

    with Cohort(points_job(step=step), 1, worker=late_worker([], is_done=is_done)) as cohort:
        cohort.meet()
        cohort.send_window(4)
        gone = cohort.collect(Exiting, [0])[0]
        cohort.threads[0].join(30)
    assert "no third batch" in gone.error
    assert len(cohort.rows()) == 2


def test_a_device_that_fails_after_the_step_ends_the_rank_with_its_words():
    with Cohort(points_job(), 1, worker=late_worker([], fails_at=3)) as cohort:
        cohort.meet()
        cohort.send_window(4)
        gone = cohort.collect(Exiting, [0])[0]
        cohort.threads[0].join(30)
    assert "the device gave up" in gone.error
    assert cohort.codes == [ExitCode.FAILED]
    assert len(cohort.rows()) == 2


class Noting(Points):
    """Notes on which thread each sample was read."""

    def __init__(self):
        super().__init__()
        self.reads = []

    def __getitem__(self, index):
        self.reads.append(threading.current_thread().name)
        return super().__getitem__(index)


def test_samples_are_read_on_while_the_gpu_has_a_batch():
    data = Noting()
    with Cohort(points_job(dataset=lambda: data), 1, worker=late_worker([])) as cohort:
        cohort.meet()
        cohort.send_window(6, full_at=5)
        cohort.until_told(5)
        reads = [thread for thread in data.reads if thread != "MainThread"]  # the job was described
        first, *later = [reads[at * SIZE : (at + 1) * SIZE] for at in range(5)]
        cohort.reduce(5)
        cohort.finish()
    assert "read ahead" not in first, "nothing is read ahead before the first is launched"
    assert all(thread == "read ahead" for batch in later for thread in batch)
