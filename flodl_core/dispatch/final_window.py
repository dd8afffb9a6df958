"""The last window of an event, apportioned exactly so that every batch has a taker.

Without it the last window would leave some rank a single batch, which has no
marginal time to measure, or a crumb that nobody takes. Not a pool: it says how many
batches each rank gets, the pool says which. The coordinator drives it in the
barrier-paced modes; a count is a rank's batches a window.
"""

from collections.abc import Sequence

from flodl_core.errors import LocalProtocolError


def is_final_window(remaining_batches: int, counts: Sequence[int]) -> bool:
    """Return whether the remainder is apportioned: 0 < remainder < Σ counts + world.

    Args:
        remaining_batches: whole batches left.
        counts: by rank, 0 for the dead; its length is the world.
    """
    return 0 < remaining_batches < sum(counts) + len(counts)


def apportion(remaining_batches: int, counts: Sequence[int]) -> tuple[int, ...]:
    """Return the batches of each rank in the final window; they sum to the remainder.

    Args:
        remaining_batches: whole batches left, 0 or more.
        counts: by rank, 0 for the dead, who get 0.

    Raises:
        LocalProtocolError: no count is above 0, or a number is negative.
    """
    if not counts or min(counts) < 0 or max(counts) == 0 or remaining_batches < 0:
        raise LocalProtocolError(
            f"{remaining_batches} batches over counts {tuple(counts)}; expected 0 or more of each "
            "and a count above 0"
        )
    if remaining_batches >= sum(counts):
        return _add_crumb(remaining_batches, counts)
    return _join_singles(_largest_remainder(remaining_batches, counts), counts)


def _add_crumb(remaining_batches: int, counts: Sequence[int]) -> tuple[int, ...]:
    """Full counts, and the rest one by one, slowest first, to all but the fastest."""
    alive = [rank for rank, count in enumerate(counts) if count]
    fastest = max(alive, key=lambda rank: counts[rank])
    takers = sorted((rank for rank in alive if rank != fastest), key=lambda rank: counts[rank])
    slots = list(counts)
    for turn in range(remaining_batches - sum(counts)):
        slots[takers[turn % len(takers)] if takers else fastest] += 1
    return tuple(slots)


def _largest_remainder(remaining_batches: int, counts: Sequence[int]) -> list[int]:
    total = sum(counts)
    slots = [remaining_batches * count // total for count in counts]
    by_fraction = sorted(
        range(len(counts)), key=lambda rank: -(remaining_batches * counts[rank] % total)
    )
    for rank in by_fraction[: remaining_batches - sum(slots)]:
        slots[rank] += 1
    return slots


def _join_singles(slots: list[int], counts: Sequence[int]) -> tuple[int, ...]:
    """Move each slot of one batch onto the smallest other that is not empty."""
    alive = [rank for rank, count in enumerate(counts) if count]
    while True:
        single = next((rank for rank in alive if slots[rank] == 1), None)
        peers = [rank for rank in alive if rank != single and slots[rank]]
        if single is None or not peers:
            return tuple(slots)
        slots[min(peers, key=lambda rank: slots[rank])] += 1
        slots[single] = 0
