"""Numbers of the root's cycles that carry an outer velocity, in the modes that average on NCCL.

There every rank has the velocity and the root has none. The root's own cycles, which move
whole regions between it and the ranks, are numbered apart from the averages:

```
0            the initial broadcast
1            velocity down: a resumed run whose next average is stepped gives it to all ranks
2k + 1       velocity up, right before
2k + 2       parameters and buffers up, for a save; k = 1, 2, …
```

Without an outer optimizer saves are numbered 1, 2, 3 …, and no cycle carries a velocity.
"""

from typing import Final

from flodl_core.ids import Cycle

VELOCITY_DOWN: Final = Cycle(1)


def next_publish(before: int, *, has_velocity: bool) -> int:
    """Return the cycle in which the next save gets its parameters.

    Args:
        before: of the save before; 0 if there was none.
        has_velocity: whether a velocity goes up before the parameters.
    """
    if not has_velocity:
        return before + 1
    return max(before, VELOCITY_DOWN + 1) + 2


def velocity_up(publish: Cycle) -> Cycle:
    """Return the cycle that carries the velocity of the save that ends with `publish`."""
    return Cycle(publish - 1)


def carries_velocity(cycle: Cycle) -> bool:
    """Return whether the values of that cycle are a velocity, in a run that has one."""
    return cycle % 2 == 1
