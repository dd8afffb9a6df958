"""Whether reading samples uses Python's and numpy's generators, which are slow to seed.

What it is: a watch in three phases. At first every sample is read under its seed, and the
states before and after are compared. If none of the first samples used a generator, they
are seeded no more; both are put to a known seed, and after each sample must give the very
numbers that follow from it. Once a sample is seen to use one, all are seeded for good.

    LEARNING ──64 samples used none──▶ SPARING ──one used it──▶ SEEDING
        └───────────────one used it────────────────────────────────▲

What it is not: a watch of torch's generator, whose seeding is cheap; nor of generators
that the code makes for itself.
Who drives it: `samples.SampleReader`, which alone uses the generators between `begin` and
the last look.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final

import numpy as np

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
    """Watches the global generators of Python and numpy."""

    def __init__(self) -> None:
        self._phase = _Phase.LEARNING
        self._learned = 0
        self._looks = 0

    @property
    def is_sparing(self) -> bool:
        """Whether samples are read without seeding, with a look after each."""
        return self._phase is _Phase.SPARING

    def begin(self) -> None:
        """Say that others may have used the generators."""
        if self.is_sparing:
            random.seed(_KNOWN_SEED)
            np.random.seed(_KNOWN_SEED)
            self._looks = 0

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Learn from a block whether it uses the generators, which are seeded for it."""
        if self._phase is not _Phase.LEARNING:
            yield
            return
        before = _states()
        yield
        if _states() != before:
            self._phase = _Phase.SEEDING
            return
        self._learned += 1
        if self._learned >= SAMPLES_TO_LEARN:
            self._phase = _Phase.SPARING
            self.begin()

    def is_untouched(self) -> bool:
        """Return whether neither was used since `begin` or the last look; only when sparing."""
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


def _states() -> tuple[object, ...]:
    name, key, *rest = np.random.get_state()
    return random.getstate(), name, np.asarray(key).tobytes(), *rest
