"""Whether reading samples uses the process's generators, which take long to seed.

What it is: a watch in three phases. At first every sample is read under its seed, and the
states before and after are compared. If none of the first samples used Python's or numpy's
generator, these are seeded no more; both are put to a known seed, and after the samples
must give the very numbers that follow from it. Once a sample is seen to use one, all are
seeded for good. Torch's generator is judged by itself: many samples use that one alone.

    LEARNING ──64 samples used none──▶ SPARING ──one used it──▶ SEEDING
        └───────────────one used it────────────────────────────────▲

What it is not: a watch of generators that the code makes for itself, or of a device.
Who drives it: `samples.SampleReader`, which alone uses the generators between `begin` and
the last look.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final

import numpy as np
import torch

SAMPLES_TO_LEARN: Final = 64

_KNOWN_SEED: Final = 0x5EED_F10D
_LOOKS: Final = 256
"""Looks between two seedings."""

_PYTHON = random.Random(_KNOWN_SEED)  # noqa: S311 - the sequence of the global one is what counts
_PYTHON_NUMBERS: Final = tuple(_PYTHON.random() for _ in range(_LOOKS))
_NUMPY_NUMBERS: Final = tuple(np.random.RandomState(_KNOWN_SEED).random_sample(_LOOKS).tolist())


class _Phase(Enum):
    LEARNING = "learning"
    SPARING = "sparing"
    SEEDING = "seeding"


class GeneratorWatch:
    """Watches the global generators of Python, numpy and torch."""

    def __init__(self) -> None:
        self._phase = _Phase.LEARNING
        self._samples_use_torch = False
        self._learned = 0
        self._looks = 0

    @property
    def is_sparing(self) -> bool:
        """Whether Python and numpy are not seeded for a sample, with a look after each."""
        return self._phase is _Phase.SPARING

    @property
    def is_sparing_torch(self) -> bool:
        """Whether torch is not seeded for a sample either."""
        return self.is_sparing and not self._samples_use_torch

    def begin(self) -> None:
        """Say that others may have used the generators."""
        if self.is_sparing:
            random.seed(_KNOWN_SEED)
            np.random.seed(_KNOWN_SEED)
            self._looks = 0

    @contextmanager
    def learning(self, *, from_sample: bool = True) -> Iterator[None]:
        """Learn from a block whether it uses the generators, which are seeded for it.

        Args:
            from_sample: whether the block reads a sample; if not it makes a batch, which
                tells nothing of torch.
        """
        if self._phase is not _Phase.LEARNING:
            yield
            return
        before, torch_before = _states(), torch.default_generator.get_state()
        yield
        if from_sample and not torch.equal(torch.default_generator.get_state(), torch_before):
            self._samples_use_torch = True
        if _states() != before:
            self._phase = _Phase.SEEDING
            return
        self._learned += 1
        if self._learned >= SAMPLES_TO_LEARN:
            self._phase = _Phase.SPARING
            self.begin()

    def is_untouched(self) -> bool:
        """Return whether neither Python's nor numpy's was used since `begin` or the last look.

        Only when sparing.
        """
        look = self._looks
        number = random.random()  # noqa: S311 - compared, not used
        same = number == _PYTHON_NUMBERS[look] and np.random.random_sample() == _NUMPY_NUMBERS[look]
        self._looks = look + 1
        if self._looks == _LOOKS:
            self.begin()
        return same

    def give_up(self) -> None:
        """Seed every sample from now on."""
        self._phase = _Phase.SEEDING

    def give_up_torch(self) -> None:
        """Seed torch for every sample from now on."""
        self._samples_use_torch = True


def _states() -> tuple[object, ...]:
    name, key, *rest = np.random.get_state()
    return random.getstate(), name, np.asarray(key).tobytes(), *rest
