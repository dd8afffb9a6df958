"""Loader workers as real processes: the same bits, named deaths, and nothing left."""

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from chancy_job import SAMPLES
from test_training_batch_codec import same
from test_training_read_ahead import PLACES, read_at_once
from training_cohort import MemoryLog

from flodl_core.errors import JobError
from flodl_core.messages.job import JobRef
from flodl_core.training.loader_pool import MAX_DEATHS, LoaderPool, WorkerTraceback
from flodl_core.training.loader_wire import LoaderOrder
from flodl_core.training.samples import BatchPlace, PassOrder
from flodl_core.training.sayable import MAX_TOLD_BYTES

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.timeout(180)]

JOB = Path(__file__).with_name("chancy_job.py")
CPU = torch.device("cpu")
CEILING_S = 60.0
TORN = next(place for place in PLACES[:8] if 40 in PassOrder(SAMPLES, 3).ids(place))
WHOLE = [place for place in PLACES[:8] if place != TORN]


class Pool(LoaderPool):
    """A pool with a log that is kept, and certainty that nothing of it is left."""

    def __init__(self, workers, *, n_samples=SAMPLES, device=CPU, **args):
        self.kept_log = MemoryLog()
        order = LoaderOrder(
            job=JobRef(kind="file", name="chancy_job:job", args=args),
            job_path=JOB,
            seed=3,
            dataset_seed=11,
            n_samples=n_samples,
            threads=torch.get_num_threads(),
        )
        super().__init__(order, workers, name="rank0", device=device, log=self.kept_log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.finish()

    def finish(self):
        pids = [self._server.pid, *self.pids()]
        self.close()
        assert not self._thread.is_alive()
        assert until(lambda: not any(pid and is_alive(pid) for pid in pids), 5), pids

    def pids(self):
        return [worker.pid for worker in self._workers.values()]

    def until(self, look):
        assert until(look), "it did not come"

    def until_reading(self):
        self.until(lambda: any(worker.place for worker in self._workers.values()))
        return next(worker for worker in self._workers.values() if worker.place)


def is_alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def until(look, ceiling_s=CEILING_S):
    pause = threading.Event()
    for _ in range(int(ceiling_s / 0.01)):
        if look():
            return True
        pause.wait(0.01)
    return False


def open_descriptors():
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_give_the_batches_that_reading_in_the_rank_gives(workers):
    before = open_descriptors()
    with Pool(workers) as pool:
        for number, place in enumerate(PLACES):
            ahead = PLACES[number + 1 : number + 1 + pool.depth]
            same(pool.take(place, ahead), read_at_once(place))
        assert len(set(pool.pids())) == workers
    assert open_descriptors() == before
    assert not pool.kept_log.records


def test_however_plans_change_each_batch_is_the_one_that_was_asked_for():
    with Pool(2) as pool:
        pool.take(PLACES[0], PLACES[1:5])
        pool.expect(PLACES[8:12])
        pool.expect(())
        same(pool.take(PLACES[9], PLACES[2:4]), read_at_once(PLACES[9]))
        pool.expect(PLACES[5:6])
        same(pool.take(BatchPlace(0, 3, 5), PLACES[2:4]), read_at_once(BatchPlace(0, 3, 5)))
        same(pool.take(PLACES[2], ()), read_at_once(PLACES[2]))
        assert len(pool._ready) <= pool.depth


def test_catching_up_with_a_pool_waits_for_the_next_batch_and_not_for_ever():
    with Pool(1) as pool:
        assert pool.catch_up(0.0), "nothing is wanted"
        pool.expect(PLACES[:2])
        assert pool.catch_up(CEILING_S)
        assert PLACES[0] in pool._ready
        pool.expect(PLACES[3:4])
        while not pool.catch_up(0.001):
            assert PLACES[3] not in pool._ready
        same(pool.take(PLACES[3], ()), read_at_once(PLACES[3]))


def test_a_pool_reads_as_far_as_it_is_told_and_keeps_no_more():
    with Pool(2) as pool:
        pool.expect(PLACES[: pool.depth])
        pool.until(lambda: len(pool._ready) == pool.depth)
        pool.expect(PLACES[6:7])
        pool.until(lambda: list(pool._ready) == PLACES[6:7])


def test_a_torn_sample_fails_the_batch_that_holds_it_and_names_worker_and_sample():
    with Pool(2, fault="raises") as pool:
        for place in WHOLE:
            same(pool.take(place, [TORN]), read_at_once(place))
        with pytest.raises(JobError) as failure:
            pool.take(TORN, ())
        text = str(failure.value)
        assert text.startswith("ValueError: sample 40 is torn (chancy_job.py:")
        assert f"reading {TORN}: samples" in text
        assert "loader worker" in text
        assert "40" in text.rpartition("samples")[2]
        assert isinstance(failure.value.__cause__, WorkerTraceback)
        assert "in fail" in str(failure.value.__cause__)
        same(pool.take(WHOLE[0], ()), read_at_once(WHOLE[0]))


@pytest.mark.long
@pytest.mark.parametrize(("fault", "end"), [("dies", "SIGKILL"), ("leaves", "exit code 3")])
def test_a_worker_that_dies_is_named_and_replaced(tmp_path, fault, end):
    mark = tmp_path / "died"
    with Pool(2, fault=fault, mark=str(mark)) as pool:
        same(pool.take(TORN, WHOLE), read_at_once(TORN))
        for place in WHOLE:
            same(pool.take(place, ()), read_at_once(place))
        died = pool.kept_log.named("loader_worker_died")
        assert [(one["pid"], one["ended"]) for one in died] == [(int(mark.read_text()), end)]
        assert died[0]["pid"] not in pool.pids()


@pytest.mark.long
def test_a_second_death_over_one_batch_is_an_error_that_names_the_worker():
    with Pool(1, fault="dies") as pool:
        with pytest.raises(JobError) as failure:
            pool.take(TORN, ())
        text = failure.value.happened
        assert text.startswith("loader worker 0 (process ")
        assert text.endswith(f"was ended by SIGKILL while it read {TORN}")
        assert "--loader-workers" in failure.value.fix


@pytest.mark.long
def test_a_worker_killed_while_it_idles_is_replaced_until_that_happens_too_often():
    with Pool(1) as pool:
        for number in range(MAX_DEATHS + 1):
            same(pool.take(PLACES[number], ()), read_at_once(PLACES[number]))
            os.kill(pool.pids()[0], signal.SIGKILL)
            pool.until(lambda n=number: len(pool.kept_log.records) > n)
        with pytest.raises(JobError, match="was ended by SIGKILL between two batches"):
            pool.take(PLACES[9], ())


def test_data_that_cannot_be_opened_are_an_error_with_the_place():
    with Pool(2, fault="no data") as pool, pytest.raises(JobError) as failure:
        pool.take(PLACES[0], ())
    assert "could not open the data" in str(failure.value)
    assert "FileNotFoundError: the data are not here (chancy_job.py:" in str(failure.value)


def test_a_death_while_the_data_are_opened_is_not_tried_again():
    with Pool(2, fault="dies in opening") as pool, pytest.raises(JobError) as failure:
        pool.take(PLACES[0], ())
    assert "was ended by SIGKILL while it opened the data" in str(failure.value)


def test_data_of_another_length_are_refused():
    with Pool(1, n_samples=65) as pool, pytest.raises(JobError, match="agreed on 65"):
        pool.take(PLACES[0], ())


def test_a_batch_that_cannot_be_handed_over_names_what_is_in_it():
    with Pool(1, collated=False) as pool, pytest.raises(JobError, match="holds a builtins"):
        pool.take(PLACES[0], ())


def test_a_batch_that_cannot_be_put_together_again_is_named_with_its_place():
    with Pool(1, collated="gathered") as pool, pytest.raises(JobError) as failure:
        pool.take(PLACES[0], ())
    said = failure.value.happened
    assert said.startswith("a batch could not be put together again: TypeError: made of samples")
    assert f"reading {PLACES[0]}: samples" in said
    assert "--loader-workers 0" in failure.value.fix


def test_an_error_of_any_text_is_told_and_bounded():
    with Pool(1, fault="raises oddly") as pool, pytest.raises(JobError) as failure:
        pool.take(TORN, ())
    said = failure.value.happened
    assert said.startswith("ValueError: cat\\udc80.png xxx")
    assert "reading sample 40 of Chancy" in said
    assert len(said.encode()) < 2 * MAX_TOLD_BYTES
    assert len(str(failure.value.__cause__).encode()) < 128 * 1024


def test_a_lost_server_is_named():
    with Pool(1) as pool:
        pool.take(PLACES[0], ())
        worker = pool.pids()[0]
        os.kill(pool._server.pid, signal.SIGKILL)
        pool.until(lambda: pool._failure)
        with pytest.raises(JobError, match=r"the loader's server \(process \d+\) was ended by SIG"):
            pool.take(PLACES[1], ())
        pool.until(lambda: not is_alive(worker))


def test_closing_ends_a_worker_that_hangs_in_a_sample():
    with Pool(1, fault="hangs") as pool:
        pool.expect([TORN])
        pool.until_reading()


def test_closing_before_the_server_is_up_leaves_nothing():
    with Pool(2):
        pass


RANK = """
import os, sys
sys.path.insert(0, sys.argv[1])
from test_training_loader_pool import *
pool = Pool(2, fault="hangs")
pool.take(WHOLE[0], [TORN])
if sys.argv[2] == "fork" and os.fork() == 0:
    threading.Event().wait(120)
    os._exit(0)
print(pool._server.pid, *pool.pids(), flush=True)
sys.stdin.read()
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["plain", "fork"])
def test_a_killed_rank_takes_its_server_and_workers_with_it(how):
    """Also while a process that the job forked in the rank lives on."""
    rank = subprocess.Popen(
        [sys.executable, "-c", RANK, str(Path(__file__).parent), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        pids = [int(word) for word in rank.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(is_alive, pids))
        rank.kill()
        rank.wait(CEILING_S)
        assert until(lambda: not any(map(is_alive, pids)), 10)
    finally:
        os.killpg(rank.pid, signal.SIGKILL)
        rank.stdin.close()
        rank.stdout.close()


@pytest.mark.long
def test_a_rank_that_ends_without_closing_leaves_no_process():
    script = RANK.replace("sys.stdin.read()", "os._exit(0)")
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent), "plain"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    pids = [int(word) for word in done.stdout.split()]
    assert until(lambda: not any(map(is_alive, pids)), 10)
