"""One seed, one run.

What it is: the two functions that everybody calls.
What it is not: the world.
Who drives it: tests, and `python -m flodl_core.simulation`.
"""

from flodl_core.ids import Mode
from flodl_core.simulation.draws import draw_scenario
from flodl_core.simulation.outcome import Outcome
from flodl_core.simulation.rules import SimulationFailure
from flodl_core.simulation.scenario import Scenario
from flodl_core.simulation.world import World


def simulate(seed: int, mode: Mode = Mode.CPU_SYNC) -> Outcome:
    """Run the scenario of a seed in a mode to its end.

    Raises:
        SimulationFailure: a rule did not hold; the text begins with the seed.
    """
    return run_scenario(draw_scenario(seed, mode))


def run_scenario(scenario: Scenario) -> Outcome:
    """Run a scenario to its end.

    Raises:
        SimulationFailure: a rule did not hold, or a machine raised.
    """
    try:
        return World(scenario).run()
    except Exception as error:
        text = f"seed {scenario.seed}: {type(error).__name__}: {error}"
        raise SimulationFailure(text) from error
