"""Which rank's batches the window is counted in: the slow one, without hopping about.

What it is: the election rule, and what hardware says before anything is measured.
What it is not: a memory; the current anchor rank is an argument.
Who drives it: `elche.balancer`; the coordinator asks `hardware_prior` once, when a run begins.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from flodl_core.elche.settings import COHORT_BAND, DOMINANCE_MARGIN
from flodl_core.ids import Rank
from flodl_core.units import Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What is known of a rank's device before it did a batch.

    Attributes:
        vendor: its maker's name.
        generation: of the maker's line; larger is newer.
        memory_gb: its own memory.
    """

    vendor: str
    generation: int
    memory_gb: float


def elect_anchor(ms_per_batch: Mapping[Rank, Milliseconds], current: Rank | None) -> Rank | None:
    """Return the anchor rank.

    Ranks within 15 % of the slowest are the cohort. The current anchor rank stays if it
    is one of them and none is slower by more than 10 %; otherwise it is the slowest, of
    equals the lowest rank.

    Args:
        ms_per_batch: of the ranks that were measured, above 0.
        current: the anchor rank so far.

    Returns:
        None if no rank was measured.
    """
    if not ms_per_batch:
        return None
    slowest_ms = max(ms_per_batch.values())
    if current is not None and current in ms_per_batch:
        current_ms = ms_per_batch[current]
        in_cohort = current_ms >= (1 - COHORT_BAND) * slowest_ms
        if in_cohort and slowest_ms <= current_ms * (1 + DOMINANCE_MARGIN):
            return current
    return min(rank for rank, ms in ms_per_batch.items() if ms == slowest_ms)


def hardware_prior(devices: Mapping[Rank, DeviceFacts | None]) -> Rank | None:
    """Return the rank whose device looks slowest: the least of generation × 10 + GB.

    Args:
        devices: by rank; None where a device could not be asked.

    Returns:
        Of equals the lowest rank; None if a device is unknown or vendors are mixed, since
        then the scores cannot be compared.
    """
    known = {rank: facts for rank, facts in devices.items() if facts is not None}
    vendors = {facts.vendor for facts in known.values()}
    if len(known) < len(devices) or len(vendors) != 1:
        return None
    return min(known, key=lambda rank: (_score(known[rank]), rank))


def _score(facts: DeviceFacts) -> float:
    return facts.generation * 10 + facts.memory_gb
