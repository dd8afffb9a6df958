"""The velocity of an outer optimizer at the root: which rounds are stepped, and what counts.

```
cycle 0, the initial broadcast    taken as it is
first average of a run            taken as it is: it is what later steps start from
every later params round          stepped, bucket by bucket, as it is formed
```

The velocity of a round is written beside the one before it, and counts from the moment
the round commits, as the parameters do. A round without mass, a bucket without mass and a
parameter that does not take part leave it as it was. A run that goes on from a checkpoint
of the same rule takes up the velocity too, and does not begin with a plain average again.

Memory: two f32 regions of the model's size, in the launcher alone; pages of parameters
that are never trained are never touched.

Where ranks average among themselves they have the velocity, and the root only keeps what
they bring it for a save (`BroughtVelocity`).

What it is: state and the rule of when.
What it is not: arithmetic (`reduce.outer`).
Who drives it: `consensus.Consensus`, in the root's thread.
"""

from dataclasses import dataclass

import numpy as np

from flodl_core.ids import Round
from flodl_core.messages.job import Geometry
from flodl_core.planes.round_plan import RoundPlan
from flodl_core.planes.segment import F32
from flodl_core.planes.two_sides import TwoSides
from flodl_core.reduce.velocity_cycles import carries_velocity


@dataclass(frozen=True, slots=True)
class OuterState:
    """What an outer optimizer knows at a commit, beside the parameters.

    Attributes:
        velocity: f32, as long as the parameter region; None while it is 0 everywhere.
        steps_next: whether the next average is stepped.
    """

    velocity: F32 | None = None
    steps_next: bool = False


class Velocity:
    """The velocity of one run.

    Attributes:
        values: both sides of it.
    """

    def __init__(self, geometry: Geometry, start: OuterState | None = None) -> None:
        """Begin at 0, or where a saved run was; `start` is copied."""
        known = start or OuterState()
        self.values = TwoSides(
            (
                np.zeros(geometry.params_numel, np.float32),
                np.zeros(geometry.params_numel, np.float32),
            ),
            geometry.params,
        )
        if known.velocity is not None:
            for side in self.values.sides:
                np.copyto(side, known.velocity)
        self._steps_next = known.steps_next
        self._is_moving = known.velocity is not None
        self._saved_marks = self._is_moving, self._steps_next

    def steps(self, plan: RoundPlan) -> bool:
        """Return whether this round's averages are stepped."""
        return plan.round is Round.PARAMS and plan.cycle > 0 and self._steps_next

    @property
    def before(self) -> F32:
        """The velocity of the last committed round."""
        return self.values.sides[self.values.committed]

    @property
    def after(self) -> F32:
        """Where the velocity of the round under way is written."""
        return self.values.sides[self.values.forming]

    def prepare(self, plan: RoundPlan) -> None:
        """Before the first bucket of a round that is stepped."""
        if self.steps(plan):
            self.values.prepare(plan)

    def commit(self, plan: RoundPlan, _formed: F32) -> None:
        """The round has committed: its velocity is the velocity."""
        if self.steps(plan):
            self.values.commit(plan)
            self._is_moving = True
        elif plan.round is Round.PARAMS and plan.cycle > 0:
            self._steps_next = True

    def finish(self) -> None:
        """The cycle has committed as a whole: saves may have what it left."""
        self.values.saved = self.values.committed
        self._saved_marks = self._is_moving, self._steps_next

    def take_back(self) -> None:
        """The cycle does not count: the velocity is that of the last whole commit."""
        self.values.committed = self.values.saved
        self._is_moving, self._steps_next = self._saved_marks

    def saved_state(self) -> OuterState:
        """Return the state of the last whole commit; its values are read-only."""
        is_moving, steps_next = self._saved_marks
        if not is_moving:
            return OuterState(None, steps_next)
        view = self.values.sides[self.values.saved].view()
        view.flags.writeable = False
        return OuterState(view, steps_next)


class BroughtVelocity(Velocity):
    """A velocity that the root neither steps with nor changes: ranks bring it for saves."""

    def steps(self, plan: RoundPlan) -> bool:
        """Return False: nothing is stepped here."""
        return False

    def commit(self, plan: RoundPlan, formed: F32) -> None:
        """Keep what was formed, if it is a velocity; then the next average is a stepped one."""
        if plan.round is Round.PARAMS and carries_velocity(plan.cycle):
            np.copyto(self.after, formed)
            self.values.commit(plan)
            self._is_moving = self._steps_next = True
