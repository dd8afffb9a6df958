"""How a broken rule ends a simulated run.

What it is: the one error of the oracles, and the question they all ask.
What it is not: a rule.
Who drives it: every oracle.
"""

from collections.abc import Callable
from dataclasses import dataclass

from flodl_core.simulation.scenario import Scenario
from flodl_core.units import Seconds


class SimulationFailure(AssertionError):
    """A rule does not hold; the text says which, and where in the run."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What every oracle has: the scenario, the clock, and a way to say no."""

    scenario: Scenario
    now: Callable[[], Seconds]

    def require(self, holds: object, rule: str, detail: str) -> None:
        """Fail the run if a rule does not hold."""
        if not holds:
            raise SimulationFailure(f"{rule} at {self.now():.3f} s: {detail}")
