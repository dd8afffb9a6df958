"""The real machines on a virtual clock and a lossy network.

`simulate(seed)` runs one scenario to its end with oracles after every event; a broken
rule raises `SimulationFailure`, which names the seed.
"""

from flodl_core.simulation.oracles import SimulationFailure
from flodl_core.simulation.world import Outcome, run_scenario, simulate

__all__ = ["Outcome", "SimulationFailure", "run_scenario", "simulate"]
