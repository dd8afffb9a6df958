"""The names of older checkpoints: the newest lies at the stem, each older one beside it.

    <stem>.…   <stem>.prev.…   <stem>.prev2.…   <stem>.prev3.…

What it is: names, the same for bundles and for the files of ranks.
What it is not: the move from one generation to the next.
Who drives it: `bundle` on the launcher's host, each rank on its own.
"""

from pathlib import Path
from typing import Final

PREVIOUS: Final = ".prev"


def generation_stem(stem: Path, age: int) -> Path:
    """Return the stem of a generation.

    Args:
        stem: of the newest.
        age: 0 is the newest, 1 the one before it.
    """
    if age == 0:
        return stem
    return stem.parent / f"{stem.name}{PREVIOUS}{age if age > 1 else ''}"


def generation_stems(stem: Path, keep: int) -> tuple[Path, ...]:
    """Return the stems of the `keep` newest generations, the newest first."""
    return tuple(generation_stem(stem, age) for age in range(keep))
