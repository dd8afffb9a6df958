"""How an operator changes the order of the rank table.

What it is: pure steps from one choice to the next.
What it is not: the sorting; `view.ranks` does that.
Who drives it: the Training screen's keys.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from flodl_console.view.ranks import ColumnKey, RankChoice

_RISING: Final = frozenset(
    {
        ColumnKey.MARK,
        ColumnKey.RANK,
        ColumnKey.HOST,
        ColumnKey.DEVICE,
        ColumnKey.STATE,
        ColumnKey.NOTE,
    }
)
"""Columns of words and numbers of ranks; of all others the largest is wanted first."""


def next_sort(choice: RankChoice, shown: Sequence[ColumnKey]) -> RankChoice:
    """Return the order by the next column that is shown, in that column's usual direction.

    Args:
        choice: as it is.
        shown: columns from left to right; with none the order stays.
    """
    if not shown:
        return choice
    place = shown.index(choice.sort) if choice.sort in shown else -1
    key = shown[(place + 1) % len(shown)]
    return replace(choice, sort=key, is_descending=key not in _RISING)


def reversed_sort(choice: RankChoice) -> RankChoice:
    """Return the same order the other way around."""
    return replace(choice, is_descending=not choice.is_descending)


def pinned(choice: RankChoice, rank: int) -> RankChoice:
    """Return a choice in which a rank is pinned, or no longer, if it was."""
    return replace(choice, pins=choice.pins ^ {rank})
