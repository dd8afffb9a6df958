"""Chance without a state: the same keys always give the same number.

What it is: a mixing function (splitmix64) over whole numbers.
What it is not: a random generator; nothing is drawn in an order.
Who drives it: the demo's schedule, windows and documents.
"""

from typing import Final

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_HALF: Final = 1 << 32


def mix(*keys: int) -> int:
    """Return 64 bits that depend on every key and on their order.

    The result may be a key itself: one mix for what many numbers share.
    """
    mixed = 0
    for key in keys:
        mixed = (mixed ^ key) + _GOLDEN & _MASK
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
        mixed ^= mixed >> 31
    return mixed


def unit(*keys: int) -> float:
    """Return a number from 0 to below 1, evenly spread over the keys."""
    return (mix(*keys) >> 32) / _HALF


def spread(*keys: int) -> float:
    """Return a number between -1 and 1 with its weight in the middle."""
    mixed = mix(*keys)
    return ((mixed >> 32) + (mixed & 0xFFFFFFFF)) / _HALF - 1.0
