"""The global step as one rank sees it: what is committed, and its own share of what is not.

What it is: a few numbers. The committed step is told with every average; from there on
each own batch counts for as many as the whole cohort does in the same time. Where a rank
trains on during a reduce, the batches that are in it count until the next step is told.
What it is not: a schedule; it holds nobody.
Who drives it: `dispatch.pacer`.
"""

from flodl_core.messages.control import EpochPlan, SetGlobalStep


class StepClock:
    """The step of one rank.

    Attributes:
        known: whether the step that goes with the last average is here.
        own_batches: what this rank is planned to do from one average to the next; 0 if
            nobody said.
    """

    def __init__(self) -> None:
        self.known = True
        self.own_batches = 0
        self._cohort_batches = 0
        self._base = 0
        self._closing_batches = 0

    def now(self, applied_batches: int) -> int:
        """Return the step of the batch that begins now.

        Args:
            applied_batches: own batches since the snapshot whose step was applied.
        """
        batches = self._closing_batches + applied_batches
        if self.own_batches < 1 or self._cohort_batches < 1:
            return self._base + batches
        return self._base + batches * self._cohort_batches // self.own_batches

    def take_plan(self, plan: EpochPlan) -> None:
        """A plan says how fast the step advances inside its window, if it has one."""
        if plan.window_batches:
            self.own_batches, self._cohort_batches = plan.window_batches, plan.cohort_batches

    def close(self, applied_batches: int, *, trains_on: bool) -> None:
        """A snapshot was taken of so many applied batches; the next step will count them."""
        self.known = False
        self._closing_batches = applied_batches if trains_on else 0

    def tell(self, told: SetGlobalStep) -> None:
        """The committed step is here, and perhaps how fast it advances."""
        self.known = True
        self._base, self._closing_batches = told.n, 0
        if told.own_batches:
            self.own_batches, self._cohort_batches = told.own_batches, told.cohort_batches
