"""Samples by their place in a pass: in which order, under which seed, and as a batch.

Random augmentation of a sample depends on (run seed, pass, sample id) alone, so it
is the same whichever rank reads the sample, in which process, and how far ahead.
Whoever reads has the process's random generators to itself and puts torch's back.

Seeding generators takes longer than reading many a sample, so a reader whose samples use
none stops seeding them, looks that it stays so, and reads again under their seeds what
turns out to have used one.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from flodl_core.dispatch.permutation import Permutation
from flodl_core.dispatch.seeds import SeedFamily, derive_seed
from flodl_core.errors import JobError
from flodl_core.training.batches import Batch
from flodl_core.training.callbacks import join_samples, read_sample
from flodl_core.training.generator_watch import GeneratorWatch
from flodl_core.training.job import MapDataset
from flodl_core.training.signatures import seed_generators


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Which samples make a batch.

    Attributes:
        pass_index: which pass over the data.
        offset: position of the first in the pass's order.
        size: samples, at least 1.
    """

    pass_index: int
    offset: int
    size: int

    def __str__(self) -> str:
        """Return `positions 64…95 of pass 0`."""
        return f"positions {self.offset}…{self.offset + self.size - 1} of pass {self.pass_index}"


class PassOrder:
    """The order of each pass of a run; the last pass asked for is kept."""

    def __init__(self, n_samples: int, seed: int) -> None:
        self._n_samples = n_samples
        self._seed = seed
        self._kept: tuple[int, Permutation] | None = None

    def ids(self, place: BatchPlace) -> list[int]:
        """Return the ids of a batch's samples, in their order."""
        kept = self._kept
        if kept is None or kept[0] != place.pass_index:
            kept = (place.pass_index, Permutation(self._n_samples, self._seed, place.pass_index))
            self._kept = kept
        found: list[int] = kept[1].ids(place.offset, place.size).tolist()
        return found


@dataclass(slots=True, eq=False)
class BegunBatch:
    """A batch that is being read.

    Attributes:
        pass_index: which pass over the data.
        ids: of its samples, in their order.
        samples: those that were read, from the first on.
    """

    pass_index: int
    ids: Sequence[int]
    samples: list[Any] = field(default_factory=list)

    @property
    def lacks_samples(self) -> bool:
        """Whether a sample is still to be read."""
        return len(self.samples) < len(self.ids)

    @property
    def next_id(self) -> int:
        """The id of the next sample; only where one is lacking."""
        return self.ids[len(self.samples)]


class SampleReader:
    """Reads samples under their seeds, and makes batches of them.

    Args:
        dataset: map-style.
        collate: makes a batch of samples; torch's default_collate if None.
        seed: of the run.
        n_samples: what the run agreed on.

    Raises:
        JobError: the dataset has another length here.
    """

    def __init__(
        self,
        dataset: MapDataset,
        collate: Callable[[list[Any]], Batch] | None,
        *,
        seed: int,
        n_samples: int,
    ) -> None:
        if len(dataset) != n_samples:
            raise JobError(
                f"the dataset has {len(dataset)} samples here, and the run agreed on {n_samples}",
                fix="use the same data on every host",
            )
        self._dataset = dataset
        self._collate = collate or default_collate
        self._seed = seed
        self._watch = GeneratorWatch()
        self._seeds: tuple[int, SeedFamily] | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run a block that reads samples where others use the generators before and after it."""
        self._watch.begin()
        with reading():
            yield

    def read_on(
        self,
        batch: BegunBatch,
        *,
        is_recalled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Read the samples that a begun batch lacks, each under its seed; inside a turn.

        Args:
            batch: takes them.
            is_recalled: ends the reading early, between two samples.

        Raises:
            Exception: whatever reading a sample raises.
        """
        if self._watch.is_sparing_torch:
            self._read_unseeded(batch, is_recalled)
        while batch.lacks_samples and not is_recalled():
            batch.samples.append(self._sample(batch.pass_index, batch.next_id))

    def join(self, batch: BegunBatch) -> Batch:
        """Make a batch; chance in it goes on where that of the last sample ended.

        Raises:
            Exception: whatever making it raises.
        """
        last_seed = self._seed_of(batch.pass_index, batch.ids[-1])
        if self._watch.is_sparing_torch:
            torch.default_generator.manual_seed(last_seed)
        if self._watch.is_sparing:
            drawn = torch.default_generator.get_state()
            with suppress(Exception):
                joined: Batch = join_samples(self._collate, batch.samples)
                if self._watch.is_untouched():
                    return joined
            self._watch.give_up()
            seed_generators(last_seed)
            torch.default_generator.set_state(drawn)
        with self._watch.learning(from_sample=False):
            return join_samples(self._collate, batch.samples)

    def read(self, pass_index: int, sample_ids: Sequence[int]) -> Batch:
        """Read a whole batch; the generators are left as they are then.

        Raises:
            Exception: whatever reading a sample raises.
        """
        self._watch.begin()
        batch = BegunBatch(pass_index, sample_ids)
        self.read_on(batch)
        return self.join(batch)

    def _read_unseeded(self, batch: BegunBatch, is_recalled: Callable[[], bool]) -> None:
        """Read on without seeding; keep what was read only if it has used no generator.

        Nor is anything kept if a sample fails: it may do so by its chance, and is read again
        under its seed.
        """
        first = len(batch.samples)
        torch_before = torch.default_generator.get_state()
        is_sound = False
        with suppress(Exception):
            while batch.lacks_samples and not is_recalled():
                batch.samples.append(read_sample(self._dataset, batch.next_id))
            is_sound = self._watch.is_untouched()
        if not torch.equal(torch.default_generator.get_state(), torch_before):
            self._watch.give_up_torch()
        elif is_sound:
            return
        if not is_sound:
            self._watch.give_up()
        del batch.samples[first:]

    def _sample(self, pass_index: int, sample_id: int) -> Any:  # noqa: ANN401 - what the job says
        seed = self._seed_of(pass_index, sample_id)
        if self._watch.is_sparing:
            torch.default_generator.manual_seed(seed)
            with suppress(Exception):
                found = read_sample(self._dataset, sample_id)
                if self._watch.is_untouched():
                    return found
            self._watch.give_up()
        seed_generators(seed)
        with self._watch.learning():
            return read_sample(self._dataset, sample_id)

    def _seed_of(self, pass_index: int, sample_id: int) -> int:
        if self._seeds is None or self._seeds[0] != pass_index:
            self._seeds = (pass_index, SeedFamily(self._seed, "sample", pass_index))
        return self._seeds[1].seed(sample_id)


def seed_step(run_seed: int, place: BatchPlace) -> None:
    """Seed numpy's and Python's generators for the step of a batch; torch's goes on by itself."""
    seed = derive_seed(run_seed, "step", place.pass_index, place.offset)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


@contextmanager
def reading() -> Iterator[None]:
    """Run a block that reads samples, and put torch's generator back after it."""
    state = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(state)
