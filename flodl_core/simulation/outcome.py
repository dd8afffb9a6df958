"""How a simulated run ended.

What it is: one frozen record, equal for equal seeds.
What it is not: a verdict; a broken rule raises instead.
Who drives it: `simulation.world` makes it, tests and the command line read it.
"""

from dataclasses import dataclass

from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a simulated run ended."""

    seed: int
    exit_code: int
    reason: str
    detail: str
    ended_at_s: Seconds
    events: int
    """Events that the coordinator handled."""
    syncs: int
    trained: int
    dropped: int
    saves: int
    lost: int
