"""A cursor that stays with what it is on, whatever becomes of the order around it.

What it is: pure rules for the row of a cursor and the rows in sight.
What it is not: a widget.
Who drives it: the rank table.
"""

from collections.abc import Sequence


def followed(ranks: Sequence[int], rank: int | None, row: int) -> tuple[int, int | None]:
    """Return row and rank of the cursor in a new order.

    The cursor stays with its rank; if that is gone it takes the one in its place.

    Args:
        ranks: in their new order.
        rank: that the cursor was on.
        row: that the cursor was in.
    """
    if not ranks:
        return 0, None
    if rank in ranks:
        return ranks.index(rank), rank
    place = clamped(row, ranks)
    return place, ranks[place]


def clamped(row: int, ranks: Sequence[int]) -> int:
    """Return the nearest row that there is; 0 without any."""
    return max(0, min(row, len(ranks) - 1))


def first_in_sight(first: int, row: int, room: int) -> int:
    """Return the first row in sight so that a row is, moved as little as possible.

    Args:
        first: the first row in sight so far.
        row: that must be in sight.
        room: rows in sight, at least 1.
    """
    return max(min(first, row), row - room + 1)
