"""One seed, one run.

What it is: the functions that everybody calls.
What it is not: the world.
Who drives it: tests, and `python -m flodl_core.simulation`.
"""

from dataclasses import replace
from typing import Final

from flodl_core.ids import Mode
from flodl_core.simulation.draws import draw_scenario
from flodl_core.simulation.nccl_world import NcclWorld
from flodl_core.simulation.outcome import Outcome
from flodl_core.simulation.rules import SimulationFailure
from flodl_core.simulation.scenario import SIMULATED, Scenario
from flodl_core.simulation.world import World

FEW_S: Final = 0.1
"""Longest batch of a run that goes on: what is left for it was drawn for another world."""
RESUMED_SEEDS: Final = 1_000_000
"""From a seed to the seed of the run that goes on from it."""


def simulate(seed: int, mode: Mode = Mode.CPU_SYNC) -> Outcome:
    """Run the scenario of a seed in a mode to its end.

    Raises:
        SimulationFailure: a rule did not hold; the text begins with the seed.
    """
    scenario = draw_scenario(seed, mode)
    return run_on_nccl(scenario) if mode.uses_nccl else run_scenario(scenario)


def simulate_resumed(seed: int, mode: Mode = Mode.CPU_SYNC) -> Outcome | None:
    """Run the scenario of a seed, then go on from its newest bundle in another world.

    What is trained stays what it was; hosts, speeds, faults, cadence and, for every fourth
    seed, the mode are those of another seed.

    Returns:
        How the second run ended; None if the first left nothing to go on from.

    Raises:
        SimulationFailure: a rule did not hold in either run; each position is settled at
            most once in the bundle and the second run together.
    """
    first = draw_scenario(seed, mode)
    world = World(first)
    _drive(world)
    saved = world.oracles.newest_bundle
    if saved is None or saved.facts.epoch >= first.epochs * first.epoch_splits:
        return None
    others = [one for one in SIMULATED if one is not mode]
    other = others[seed // 4 % len(others)]
    then = draw_scenario(seed + RESUMED_SEEDS, other if seed % 4 == 0 else mode)
    return run_scenario(
        replace(
            then,
            saved=saved,
            batch_s=tuple(min(one, FEW_S) for one in then.batch_s),
            n_samples=first.n_samples,
            batch_size=first.batch_size,
            epochs=first.epochs,
            epoch_splits=first.epoch_splits,
            param_buckets=first.param_buckets,
            buffer_buckets=first.buffer_buckets,
            outer=first.outer,
        )
    )


def run_scenario(scenario: Scenario) -> Outcome:
    """Run a scenario to its end.

    Raises:
        SimulationFailure: a rule did not hold, or a machine raised.
    """
    return _drive(World(scenario))


def run_on_nccl(scenario: Scenario) -> Outcome:
    """Run a scenario of a mode on NCCL to its end; its faults are drawn by the world.

    Raises:
        SimulationFailure: a rule did not hold, or a machine raised.
    """
    return _drive(NcclWorld(scenario))


def _drive(world: World | NcclWorld) -> Outcome:
    try:
        return world.run()
    except Exception as error:
        text = f"seed {world.scenario.seed}: {type(error).__name__}: {error}"
        raise SimulationFailure(text) from error
