"""The real machines on a virtual clock and a lossy network.

`simulate(seed)` runs one scenario to its end with oracles after every event; a broken
rule raises `SimulationFailure`, which names the seed.
"""

from flodl_core.simulation.outcome import Outcome
from flodl_core.simulation.rules import SimulationFailure
from flodl_core.simulation.simulate import run_scenario, simulate, simulate_resumed

__all__ = ["Outcome", "SimulationFailure", "run_scenario", "simulate", "simulate_resumed"]
