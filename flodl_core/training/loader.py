"""Samples by their place in a pass: fetched, seeded one by one, and collated.

Random augmentation of a sample depends on (run seed, pass, sample id) alone, so it
is the same whichever rank draws the sample. Reading happens on the training thread;
torch's generator is put back after it, and those of Python and numpy are seeded
anew for the step.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import default_collate

from flodl_core.dispatch.permutation import Permutation
from flodl_core.dispatch.seeds import derive_seed
from flodl_core.errors import JobError
from flodl_core.training.batches import Batch, move_batch
from flodl_core.training.job import MapDataset
from flodl_core.training.signatures import seed_generators


class SampleLoader:
    """Fetches batches of one run's training data.

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
        self._permutation: tuple[int, Permutation] | None = None

    def fetch(self, pass_index: int, offset: int, size: int) -> Batch:
        """Return the batch at positions `offset` … of a pass.

        Args:
            pass_index: which pass over the data.
            offset: position in the pass's order.
            size: samples, at least 1.
        """
        torch_state = torch.default_generator.get_state()
        samples = []
        for sample_id in self._order(pass_index).ids(offset, size).tolist():
            seed_generators(derive_seed(self._seed, "sample", pass_index, sample_id))
            samples.append(self._dataset[sample_id])
        batch = self._collate(samples)
        seed_generators(derive_seed(self._seed, "step", pass_index, offset))
        torch.default_generator.set_state(torch_state)
        return batch

    def _order(self, pass_index: int) -> Permutation:
        if self._permutation is None or self._permutation[0] != pass_index:
            order = Permutation(len(self._dataset), self._seed, pass_index)
            self._permutation = (pass_index, order)
        return self._permutation[1]


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
