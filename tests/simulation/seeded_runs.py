"""What every file of simulated runs asks: that no seed breaks a rule, and that a run is whole."""

from collections.abc import Callable

from flodl_core.ids import ExitCode
from flodl_core.simulation import SimulationFailure
from flodl_core.simulation.outcome import Outcome

BATCHES = 150
"""Of a calm run's only pass."""
CALM = {
    "hosts": (2, 2),
    "n_samples": 2 * BATCHES,
    "batch_size": 2,
    "has_eval": True,
    "batch_s": (0.02, 0.02, 0.05, 0.2),
}
"""A scenario without faults, for ranks of unequal speed."""


def check_seeds(play: Callable[[int], object], seeds: range) -> None:
    """Play every seed; name all that broke a rule."""
    failures = []
    for seed in seeds:
        try:
            play(seed)
        except SimulationFailure as failure:
            failures.append(str(failure))
    assert not failures, "\n".join(failures)


def check_whole(outcome: Outcome, lost: int = 0) -> None:
    """See that a calm pass ended as it should and trained every sample once."""
    assert (outcome.exit_code, outcome.lost) == (ExitCode.DONE, lost), outcome
    assert (outcome.trained, outcome.dropped) == (2 * BATCHES, 0)
