"""A file in which the ranks of a measured run note each batch, and from which their pace comes.

What it is: memory that the measuring script and the job's steps share: a batch's begin,
its end and its window, and by rank a few numbers, such as the factor of its slowness.
What it is not: a part of the product, which knows nothing of it.
Who drives it: `hetero_job` writes in every rank, `hetero_adapter` and `cadence_run` read.

All times are seconds on the machine's monotonic clock.
"""

import threading
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

MAX_BATCHES: Final = 1 << 17
"""Of one rank; a rank that is beyond notes no further batch."""

_DONE, _FACTOR, _SOLO, _SOLO_SLOW = range(4)
_NUMBERS: Final = 8
_BEGAN, _ENDED, _WINDOW = range(3)

F64 = npt.NDArray[np.float64]


class RankBatches(NamedTuple):
    """The batches of one rank, in their order."""

    began: F64
    ended: F64
    window: F64
    """Adoptions before the batch."""


class Tally:
    """The notes of all ranks of one run.

    Args:
        path: of the file that `create` made.
        world: ranks.
    """

    def __init__(self, path: Path, world: int) -> None:
        self.path = path
        self.world = world
        whole = np.memmap(path, dtype=np.float64, mode="r+", shape=(world, _span()))
        self._numbers = whole[:, :_NUMBERS]
        self._batches = whole[:, _NUMBERS:].reshape(world, MAX_BATCHES, 3)

    @classmethod
    def create(cls, path: Path, world: int) -> "Tally":
        """Make an empty file; it takes up memory only where it is written."""
        with path.open("wb") as file:
            file.truncate(world * _span() * 8)
        tally = cls(path, world)
        tally._numbers[:, _FACTOR] = 1.0
        return tally

    def note_batch(self, rank: int, began: float, ended: float, window: int) -> None:
        """Add a batch of a rank; the count is written last."""
        done = int(self._numbers[rank, _DONE])
        if done < MAX_BATCHES:
            self._batches[rank, done] = (began, ended, window)
            self._numbers[rank, _DONE] = done + 1

    def batches(self, rank: int) -> RankBatches:
        """Return a copy of what a rank has noted so far."""
        rows = self._batches[rank, : int(self._numbers[rank, _DONE])].copy()
        return RankBatches(rows[:, _BEGAN], rows[:, _ENDED], rows[:, _WINDOW])

    def count_between(self, rank: int, begin: float, end: float) -> float:
        """Return how many batches fall into a span, with parts of those at its ends."""
        found = self.batches(rank)
        inside = np.minimum(found.ended, end) - np.maximum(found.began, begin)
        parts = np.clip(inside, 0.0, None) / np.maximum(found.ended - found.began, 1e-9)
        return float(parts.sum())

    def windows_done(self) -> int:
        """Return the averages that every rank has adopted and trained on from."""
        done = [self.batches(rank).window for rank in range(self.world)]
        return int(min((found[-1] if len(found) else 0) for found in done))

    def factor(self, rank: int) -> float:
        """Return by how much the waiting of a rank's step is stretched."""
        return float(self._numbers[rank, _FACTOR])

    def slow_down(self, rank: int, factor: float) -> None:
        """Stretch the waiting of a rank's steps from its next step on."""
        self._numbers[rank, _FACTOR] = factor

    def note_solo(self, rank: int, rate: float, slow_rate: float) -> None:
        """Enter a rank's batches a second while all others rest, as it is and slowed."""
        self._numbers[rank, _SOLO_SLOW] = slow_rate
        self._numbers[rank, _SOLO] = rate

    def solo(self, rank: int) -> float:
        """Return a rank's solo batches a second; 0 until it is measured."""
        return float(self._numbers[rank, _SOLO])

    def solo_slow(self, rank: int) -> float:
        """Return a rank's solo batches a second when it is slowed; 0 if not measured."""
        return float(self._numbers[rank, _SOLO_SLOW])


def rest(seconds: float) -> None:
    """Let real time pass without using the processor."""
    if seconds > 0:
        threading.Event().wait(seconds)


def _span() -> int:
    return _NUMBERS + 3 * MAX_BATCHES
