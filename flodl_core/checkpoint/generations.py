"""The names of older checkpoints: the newest lies at the stem, each older one beside it.

    <stem>.…   <stem>.prev.…   <stem>.prev2.…   <stem>.prev3.…

What it is: names, the same for bundles and for the files of ranks.
What it is not: the move from one generation to the next.
Who drives it: `bundle` on the launcher's host, each rank on its own.
"""

import re
from pathlib import Path
from typing import Final

PREVIOUS: Final = ".prev"
WEIGHTS_SUFFIX: Final = ".safetensors"
OUTER_SUFFIX: Final = ".outer.safetensors"
META_SUFFIX: Final = ".meta.json"
BUNDLE_SUFFIXES: Final = (WEIGHTS_SUFFIX, OUTER_SUFFIX, META_SUFFIX)


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


def present_ages(stem: Path) -> tuple[int, ...]:
    """Return the ages of which a bundle file is there, complete or not, the newest first."""
    pattern = re.compile(
        re.escape(stem.name)
        + f"(?P<older>{re.escape(PREVIOUS)}(?P<age>[2-9]|[1-9][0-9]+)?)?"
        + f"(?:{'|'.join(map(re.escape, BUNDLE_SUFFIXES))})"
    )
    try:
        found = [pattern.fullmatch(path.name) for path in stem.parent.iterdir()]
    except OSError:
        return ()
    ages = {int(one["age"] or 1) if one["older"] else 0 for one in found if one is not None}
    return tuple(sorted(ages))


def newest_stem(stem: Path) -> Path:
    """Return the stem of the newest generation, given that of any."""
    return stem.with_name(re.sub(f"{re.escape(PREVIOUS)}([2-9]|[1-9][0-9]+)?$", "", stem.name))
