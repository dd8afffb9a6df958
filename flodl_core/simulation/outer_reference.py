"""What an outer optimizer must come to, worked out again in double precision.

What it is: the textbook form of each rule over the averages that the value oracle
computes, with a velocity of its own that advances when a cycle has committed.
What it is not: the arithmetic of `reduce.outer`, nor the bookkeeping of `planes.velocity`.
Who drives it: `simulation.value_oracle`.
"""

import numpy as np

from flodl_core.ids import OuterKind
from flodl_core.simulation.scenario import Scenario
from flodl_core.simulation.sim_root import Committed
from flodl_core.simulation.tiny_model import F32, F64

TOLERANCE = 1e-5
"""Of the largest value so far: some dozens of roundings to f32 in a row."""


class OuterReference:
    """The outer optimizer of one run, as it should be."""

    def __init__(self, scenario: Scenario) -> None:
        self._rule = scenario.outer
        size = scenario.params_numel
        self._previous: F32 | None = None
        self._velocity: F64 = np.zeros(size)
        self._next: F64 = np.zeros(size)
        self._steps_next = False
        self._largest = 1.0
        saved = scenario.saved
        if saved is not None and self._rule is not None:
            self._steps_next = saved.outer.steps_next
            if saved.outer.velocity is not None:
                self._velocity = saved.outer.velocity.astype(float)
                self._next = self._velocity.copy()

    def steps(self, cycle: int) -> bool:
        """Return whether the averages of this cycle are stepped."""
        return self._rule is not None and cycle > 0 and self._steps_next

    def step(self, part: slice, mean: F64) -> tuple[F64, float]:
        """Return what is adopted in place of an average, and how far off f32 may be."""
        rule, previous = self._rule, self._previous
        assert rule is not None, "there is a rule where averages are stepped"
        assert previous is not None, "something was committed before"
        x = previous[part].astype(float)
        gradient = x - mean
        velocity = rule.momentum * self._velocity[part] + gradient
        self._next[part] = velocity
        is_diloco = rule.kind is OuterKind.NESTEROV
        down = rule.momentum * velocity + gradient if is_diloco else velocity
        self._largest = max(self._largest, *np.abs(x), *np.abs(mean), *np.abs(velocity))
        return x - rule.lr * down, TOLERANCE * self._largest

    def committed(self, committed: Committed) -> None:
        """A cycle has committed: what its buckets came to counts from now on."""
        if self.steps(committed.cycle):
            self._velocity = self._next.copy()
        else:
            self._next = self._velocity.copy()
        self._steps_next |= committed.cycle > 0
        self._previous = committed.params
