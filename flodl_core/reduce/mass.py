"""How much a contribution weighs: the numbers behind every reduce.

Pure rules on numbers, without tensors and without state. The rank weighs its
own snapshot with them, the root asks whether a round realized anything, and the
simulator uses the same functions on tiny worlds.

A mass is decided once a cycle at its source. Sum and divisor of a bucket are
made of the same masses, so work that is lost enters neither.
"""

import math
from typing import Final

from flodl_core.errors import LocalProtocolError
from flodl_core.units import FLOAT32_MAX

MAX_ABS_GAMMA: Final = 8.0
"""Largest |gamma| that a run accepts."""


def gamma_mass(n: int, gamma: float) -> float:
    """Return the mass of a rank's parameters after `n` applied batches.

    Args:
        n: batches since the last sync whose optimizer step was applied.
        gamma: finite, |gamma| ≤ 8. 1 weighs by work, 0 gives the plain mean over
            the ranks that moved, −1 weighs each step of the cohort equally.

    Returns:
        0 for n ≤ 0 whatever gamma is, n itself for gamma 1, else n ** gamma.

    Raises:
        LocalProtocolError: gamma is outside its range.
    """
    if not math.isfinite(gamma) or abs(gamma) > MAX_ABS_GAMMA:
        raise LocalProtocolError(
            f"gamma is {gamma}, expected a finite number of at most {MAX_ABS_GAMMA:g} in size",
            fix="set gamma between -8 and 8",
        )
    if n <= 0:
        return 0.0
    if gamma == 1.0:
        return float(n)
    return math.pow(n, gamma)


def mover_mass(n: int) -> float:
    """Return the mass of a rank's buffers: 1 if it applied any of its `n` batches, else 0."""
    return 1.0 if n > 0 else 0.0


def is_realized(mass: float) -> bool:
    """Return whether a summed mass realized anything; any positive mass does."""
    return mass > 0.0


def is_representable(mass: float, max_abs: float, *, world_size: int) -> bool:
    """Return whether `mass` times the snapshot fits the f32 wire, summed over the world.

    Args:
        mass: the contribution's mass, ≥ 0.
        max_abs: largest |x| of the snapshot; NaN or infinite if a value is not finite.
        world_size: ranks of the run, ≥ 1.

    Returns:
        False where the rank must declare n = 0 instead of sending. A mass that does not
        fit is refused even if every value is zero, since infinity times zero is NaN.
    """
    if not (math.isfinite(mass) and math.isfinite(max_abs)):
        return False
    limit = FLOAT32_MAX / max(1, world_size)
    return mass <= limit and mass * max_abs <= limit
