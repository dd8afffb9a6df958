"""From speeds to counts: the wanted batches of each rank, and the bounds they must keep.

What it is: rules on numbers. `wanted_counts` follows the speeds; `bounded_counts` keeps
the difference bound and the window cap.
What it is not: a memory of counts; the ones so far are arguments.
Who drives it: `elche.balancer`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from flodl_core.elche.settings import DEAD_ZONE, MAX_SPEED_RATIO
from flodl_core.ids import Rank
from flodl_core.units import Milliseconds

_SAME_MS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """Counts that keep the bounds, and whether the window cap made them smaller."""

    counts: dict[Rank, int]
    cap_binding: bool


def wanted_count(anchor: int, slow_ms: Milliseconds, own_ms: Milliseconds) -> int:
    """Return a rank's batches in the time that the slow one takes for `anchor`; at least 1.

    Args:
        anchor: the slow rank's count.
        slow_ms: the slow rank's batch, above 0.
        own_ms: this rank's batch; 0 or less is unknown and gets the anchor.
    """
    if own_ms <= 0 or abs(own_ms - slow_ms) <= _SAME_MS:
        return anchor
    return max(1, round(anchor * min(slow_ms / own_ms, MAX_SPEED_RATIO)))


def leaves_dead_zone(wanted: int, current: int) -> bool:
    """Return whether a change is more than 5 % of the current count."""
    return abs(wanted - current) > DEAD_ZONE * current


def bounded_counts(
    wanted: Mapping[Rank, int], *, cap_batches: int | None, max_batch_diff: int | None
) -> Bounded:
    """Return counts that keep both bounds, each at least 1.

    Args:
        wanted: by rank, at least 1 each.
        cap_batches: what all counts together may reach; None is no cap. Where it is below
            the number of ranks each still gets 1.
        max_batch_diff: how far a count may lie above the smallest; None is no bound.
    """
    near = _limit_difference(wanted, max_batch_diff)
    if cap_batches is None or sum(near.values()) <= cap_batches:
        return Bounded(counts=near, cap_binding=False)
    fitted = _limit_difference(fit_to_cap(near, cap_batches), max_batch_diff)
    return Bounded(counts=fitted, cap_binding=True)


def fit_to_cap(counts: Mapping[Rank, int], cap_batches: int) -> dict[Rank, int]:
    """Scale counts down so that they sum to the cap, or to 1 each if that is more.

    Each is scaled and cut to a whole number, at least 1. What is left over goes, batch by
    batch, where it lengthens the window least: to the largest counts first, among equals
    to one after the other from the last on.
    """
    total = sum(counts.values())
    fitted = {rank: max(1, count * cap_batches // total) for rank, count in counts.items()}
    while sum(fitted.values()) > max(cap_batches, len(fitted)):
        fitted[max(fitted, key=lambda rank: (fitted[rank], counts[rank], rank))] -= 1
    while sum(fitted.values()) < cap_batches:
        cheapest = min(
            fitted, key=lambda rank: ((fitted[rank] + 1) / counts[rank], -counts[rank], -rank)
        )
        fitted[cheapest] += 1
    return fitted


def _limit_difference(counts: Mapping[Rank, int], max_batch_diff: int | None) -> dict[Rank, int]:
    if max_batch_diff is None or not counts:
        return dict(counts)
    most = min(counts.values()) + max_batch_diff
    return {rank: min(count, most) for rank, count in counts.items()}
