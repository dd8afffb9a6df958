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
TRIAL: Final = ".trial"
"""Of a file that is written only to see whether one can be."""

_OLDER: Final = re.escape(PREVIOUS) + "(?P<age>[2-9]|[1-9][0-9]+)?"
_RANK_FILE: Final = r"\.rank[0-9]+\.pt"


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


def age_of(name: str, newest: Path) -> int | None:
    """Return of which age a stem's name is, counted from the newest; None if of another stem."""
    found = re.fullmatch(re.escape(newest.name) + f"(?P<older>{_OLDER})?", name)
    if found is None:
        return None
    return int(found["age"] or 1) if found["older"] else 0


def present_ages(stem: Path) -> tuple[int, ...]:
    """Return the ages of which a bundle file is there, complete or not, the newest first."""
    try:
        names = [path.name for path in stem.parent.iterdir()]
    except OSError:
        return ()
    ages = {
        age_of(name.removesuffix(suffix), stem)
        for name in names
        for suffix in BUNDLE_SUFFIXES
        if name.endswith(suffix)
    }
    return tuple(sorted(age for age in ages if age is not None))


def is_part_of(name: str, stem: Path) -> bool:
    """Return whether a name is that of a half written file of a stem, of whatever generation."""
    kinds = "|".join((*map(re.escape, BUNDLE_SUFFIXES), re.escape(TRIAL) + "-*", _RANK_FILE))
    pattern = rf"\.{re.escape(stem.name)}(?:{_OLDER})?(?:{kinds})\.part"
    return re.fullmatch(pattern, name) is not None


def newest_stem(stem: Path) -> Path:
    """Return the stem of the newest generation, given that of any."""
    return stem.with_name(re.sub(f"{_OLDER}$", "", stem.name))
