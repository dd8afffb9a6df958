"""Half-open runs of positions, and arithmetic on lists of them.

A position counts samples from the start of a pass's permutation, so the same
numbers mean the same samples on every rank. Not ids: `dispatch.permutation`
turns positions into ids. Pure functions; pools, plans and accounts use them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flodl_core.errors import LocalProtocolError


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The positions `offset` … `offset + size - 1`; size 0 is empty.

    Raises:
        LocalProtocolError: offset or size is negative.
    """

    offset: int
    size: int

    def __post_init__(self) -> None:
        if self.offset < 0 or self.size < 0:
            raise LocalProtocolError(
                f"a range with offset {self.offset} and size {self.size}; both must be 0 or more"
            )

    @property
    def end(self) -> int:
        """The first position behind it."""
        return self.offset + self.size

    def split(self, size: int) -> tuple["Range", "Range"]:
        """Return the first `size` positions (at most all) and the rest; either may be empty."""
        head = min(max(size, 0), self.size)
        return Range(self.offset, head), Range(self.offset + head, self.size - head)


def total_size(ranges: Iterable[Range]) -> int:
    """Return how many positions the ranges hold, an overlap counted each time."""
    return sum(part.size for part in ranges)


def append_range(ranges: list[Range], part: Range) -> None:
    """Append `part` to `ranges` in place, joined to the last if they touch; not if empty."""
    if part.size == 0:
        return
    if ranges and ranges[-1].end == part.offset:
        ranges[-1] = Range(ranges[-1].offset, ranges[-1].size + part.size)
    else:
        ranges.append(part)


def merge_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the union: ascending, disjoint, touching ones joined, empty ones left out."""
    merged: list[Range] = []
    for part in sorted(ranges):
        if part.size == 0:
            continue
        if merged and part.offset <= merged[-1].end:
            end = max(merged[-1].end, part.end)
            merged[-1] = Range(merged[-1].offset, end - merged[-1].offset)
        else:
            merged.append(part)
    return tuple(merged)


def subtract_ranges(whole: Iterable[Range], holes: Iterable[Range]) -> tuple[Range, ...]:
    """Return what of `whole` lies in no hole: ascending, disjoint, touching ones joined."""
    remaining: list[Range] = []
    cuts = merge_ranges(holes)
    first = 0
    for part in merge_ranges(whole):
        at = part.offset
        while first < len(cuts) and cuts[first].end <= at:
            first += 1
        index = first
        while index < len(cuts) and cuts[index].offset < part.end:
            if cuts[index].offset > at:
                remaining.append(Range(at, cuts[index].offset - at))
            at = max(at, cuts[index].end)
            index += 1
        if at < part.end:
            remaining.append(Range(at, part.end - at))
    return tuple(remaining)


def overlap_size(ranges: Iterable[Range]) -> int:
    """Return how many positions are covered more often than once, each extra time counted."""
    parts = list(ranges)
    return total_size(parts) - total_size(merge_ranges(parts))


def take_samples(ranges: Sequence[Range], samples: int) -> tuple[list[Range], list[Range]]:
    """Cut the first `samples` positions off a list of ranges, in the list's own order.

    Args:
        ranges: any order; it is kept.
        samples: how many positions to take; more than there are takes all.

    Returns:
        What was taken, and what is left. Neither holds an empty range.
    """
    taken: list[Range] = []
    rest: list[Range] = []
    wanted = max(samples, 0)
    for part in ranges:
        head, tail = part.split(wanted)
        wanted -= head.size
        if head.size:
            taken.append(head)
        if tail.size:
            rest.append(tail)
    return taken, rest
