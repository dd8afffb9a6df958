"""One rank's speed: the mean of its last windows, with one odd window left aside.

What it is: a ring of five samples. One sample alone beyond twice or below half of the
ring's median is left out of the mean, so that a single hiccup moves nothing; two such
samples in a row are a step of speed, and the ring begins anew with them.
What it is not: a comparison of ranks, nor a count.
Who drives it: `elche.balancer`, with one sample or one miss a report.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from flodl_core.elche.settings import MISSES_TO_FORGET, TRUST_WINDOW
from flodl_core.ids import Rank
from flodl_core.units import Milliseconds

ODD_FACTOR: Final = 2.0
_LEAST_TO_JUDGE: Final = 3


class SpeedRing:
    """Milliseconds a batch of one rank, by window."""

    __slots__ = ("_misses", "_samples_ms")

    def __init__(self) -> None:
        self._samples_ms: deque[Milliseconds] = deque(maxlen=TRUST_WINDOW)
        self._misses = 0

    @property
    def mean_ms(self) -> Milliseconds | None:
        """The trusted mean; None if nothing is known."""
        samples = list(self._samples_ms)
        if len(samples) >= _LEAST_TO_JUDGE:
            middle = median(samples)
            sound = [sample for sample in samples if not _is_odd(sample, middle)]
            if len(sound) == len(samples) - 1:
                samples = sound
        return sum(samples) / len(samples) if samples else None

    @property
    def is_forgotten(self) -> bool:
        """Whether the rank missed so many windows in a row that nothing is known of it."""
        return self._misses >= MISSES_TO_FORGET

    def push(self, sample_ms: Milliseconds) -> None:
        """Add a window's sample, above 0."""
        self._misses = 0
        self._samples_ms.append(sample_ms)
        if len(self._samples_ms) < _LEAST_TO_JUDGE:
            return
        *earlier, before, last = self._samples_ms
        level = sum(earlier) / len(earlier)
        slower = min(before, last) > ODD_FACTOR * level
        faster = max(before, last) * ODD_FACTOR < level
        if slower or faster:
            self._samples_ms = deque((before, last), maxlen=TRUST_WINDOW)

    def miss(self) -> None:
        """The rank did no batch in a window; the fifth miss in a row clears the ring."""
        self._misses += 1
        if self.is_forgotten:
            self._samples_ms.clear()


class CohortSpeeds:
    """The rings of the alive ranks."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._rings = {rank: SpeedRing() for rank in ranks}

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """The alive ranks, ascending."""
        return tuple(self._rings)

    @property
    def means_ms(self) -> dict[Rank, Milliseconds]:
        """The trusted mean of each rank that has one."""
        means = {rank: ring.mean_ms for rank, ring in self._rings.items()}
        return {rank: mean for rank, mean in means.items() if mean is not None}

    def push(self, samples_ms: Mapping[Rank, Milliseconds]) -> None:
        """Take in a window: a sample for each rank in the mapping, a miss for the others."""
        for rank, ring in self._rings.items():
            if rank in samples_ms:
                ring.push(samples_ms[rank])
            else:
                ring.miss()

    def lose(self, rank: Rank) -> bool:
        """Take a rank out; return whether it was here."""
        return self._rings.pop(rank, None) is not None

    def is_forgotten(self, rank: Rank) -> bool:
        """Whether the rank missed so many windows in a row that its speed was dropped."""
        return self._rings[rank].is_forgotten


def median(values: list[float]) -> float:
    """Return the middle value, of an even number the lower one of the two.

    Args:
        values: at least one.
    """
    return sorted(values)[(len(values) - 1) // 2]


def _is_odd(sample_ms: Milliseconds, middle_ms: Milliseconds) -> bool:
    return sample_ms > ODD_FACTOR * middle_ms or sample_ms * ODD_FACTOR < middle_ms
