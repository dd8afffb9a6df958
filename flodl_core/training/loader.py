"""The rank's loader: batches by their place, read ahead by whatever the run has for it.

With loader workers that is processes of their own; without, the rank's own process
while it waits. What comes out is the same bits either way, and the samples of each
batch are the pacer's choice alone: the loader knows which batches come next, and
forgets what it has read when they change.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils.data import default_collate

from flodl_core.errors import LocalProtocolError
from flodl_core.training.batches import Batch, move_batch
from flodl_core.training.event_log import EventLog
from flodl_core.training.generator_turns import GeneratorTurns
from flodl_core.training.inspection import build_dataset
from flodl_core.training.job import MapDataset, TrainJob
from flodl_core.training.loader_pool import LoaderPool
from flodl_core.training.loader_wire import LoaderOrder
from flodl_core.training.read_ahead import OwnReader, ReadAhead
from flodl_core.training.samples import BatchPlace, PassOrder, SampleReader, seed_step
from flodl_core.training.seat import Seat
from flodl_core.training.signatures import seeded
from flodl_core.units import Seconds


class SampleLoader:
    """Gives the training thread its batches.

    Args:
        source: reads them.
        seed: of the run.
        turns: the process's generators, which the training thread holds.
    """

    def __init__(self, source: ReadAhead, *, seed: int, turns: GeneratorTurns) -> None:
        self._source = source
        self._seed = seed
        self._turns = turns

    @property
    def depth(self) -> int:
        """How many batches ahead it wants to know."""
        return self._source.depth

    def fetch(self, place: BatchPlace, ahead: Sequence[BatchPlace] = ()) -> Batch:
        """Return a batch, and seed the step's own draws of Python and numpy.

        Args:
            place: which samples.
            ahead: the batches after it, `depth` of them at most.

        Raises:
            Exception: whatever reading a sample raises.
        """
        batch = self._source.take(place, ahead)
        seed_step(self._seed, place)
        return batch

    def expect(self, ahead: Sequence[BatchPlace]) -> None:
        """Say which batches come next; what was read of any other is forgotten."""
        self._source.expect(ahead)

    def lend(self) -> None:
        """Let samples be read in this process until `take_back`; no job's code may run so long."""
        self._turns.lend()

    def take_back(self, timeout_s: Seconds | None = None) -> bool:
        """Have the process's generators again; waits for the sample being read, if any.

        Args:
            timeout_s: longest wait; None waits for as long as it takes.

        Returns:
            Whether this thread has them.
        """
        return self._turns.take_back(timeout_s)

    def catch_up(self, timeout_s: Seconds) -> bool:
        """Wait a while for the batches ahead; in this process they are read meanwhile.

        For a training thread that has given its device something to do: reading later would
        be no faster, and what is read by then is copied to pinned memory beside the next step.

        Args:
            timeout_s: longest wait, not counting a sample that is being read when it ends.

        Returns:
            Whether there is nothing more to wait for.
        """
        return self._source.catch_up(timeout_s)

    def lent(self) -> AbstractContextManager[None]:
        """Let samples be read in this process during a block that runs no code of the job."""
        return self._turns.lent()

    def close(self) -> None:
        """End whatever reads; nothing is left running."""
        self._source.close()


def open_loader(job: TrainJob, seat: Seat, log: EventLog) -> SampleLoader:
    """Open the data of a rank, in as many processes as this host's setting or the job says.

    Args:
        job: loaded.
        seat: which rank of which world.
        log: takes what happens to its readers.

    Raises:
        JobError: the data cannot be built, or have another length here.
        LocalProtocolError: workers are asked for, and nobody said how they find the job.
    """
    spec = seat.envelope.spec
    turns = GeneratorTurns()
    workers = job.workers if seat.loader_workers is None else seat.loader_workers
    source: ReadAhead
    if workers:
        if seat.source is None:
            raise LocalProtocolError(
                f"rank {seat.rank} has loader workers, and no source of its job"
            )
        order = LoaderOrder(
            job=seat.source.ref,
            job_path=seat.source.path,
            seed=spec.seed,
            dataset_seed=seat.seed("dataset"),
            n_samples=spec.n_samples,
            threads=torch.get_num_threads(),
        )
        source = LoaderPool(order, workers, name=f"rank{seat.rank}", device=seat.device, log=log)
    else:
        with seeded(seat.seed("dataset")):
            dataset = build_dataset(job, name=spec.job.name)
        source = OwnReader(
            SampleReader(dataset, job.collate, seed=spec.seed, n_samples=spec.n_samples),
            PassOrder(spec.n_samples, spec.seed),
            turns=turns,
            device=seat.device,
            log=log,
        )
    return SampleLoader(source, seed=spec.seed, turns=turns)


def eval_batches(
    dataset: MapDataset,
    collate: Callable[[list[Any]], Batch] | None,
    *,
    batch_size: int,
    device: torch.device,
) -> Iterator[Batch]:
    """Yield a whole dataset in its own order, on the device; the last batch may be smaller."""
    make = collate or default_collate
    count = len(dataset)
    for start in range(0, count, batch_size):
        samples = [dataset[index] for index in range(start, min(start + batch_size, count))]
        yield move_batch(make(samples), device)
