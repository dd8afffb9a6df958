"""What goes wrong in the night, at which hour.

What it is: the faults of the longest scenario.
What it is not: its beginning and end; those are in `demo.scenarios`.
Who drives it: `demo.scenarios`.
"""

from typing import Final

from flodl_console.demo.cohort import Cohort
from flodl_console.demo.script import Fault, Loss, NonFinite, Save, Silence, Slow, Unrest

_HOUR_S: Final = 3600.0
_SAVE_EVERY_S: Final = 1800.0
_LAST_SAVE_S: Final = 7.4 * _HOUR_S


def night_faults(cohort: Cohort) -> tuple[Fault, ...]:
    """Return the faults of a night with this cohort; the launcher's first rank stays."""
    ranks = len(cohort.ranks)
    faults: list[Fault] = [
        *_saves(),
        Slow(rank=min(1, ranks - 1), from_s=4200.0, until_s=5100.0, factor=3.0),
        NonFinite(rank=min(2, ranks - 1), at_s=2.0 * _HOUR_S),
        Unrest(from_s=3.0 * _HOUR_S, until_s=3.0 * _HOUR_S + 240.0),
    ]
    if ranks > 1:
        faults.append(Loss(rank=1, at_s=5.0 * _HOUR_S, signal="SIGKILL"))
    if len(cohort.hosts) > 2:
        faults.append(Silence(host=len(cohort.hosts) - 1, from_s=6.5 * _HOUR_S))
    return tuple(faults)


def _saves() -> list[Save]:
    saves = []
    at_s = _SAVE_EVERY_S
    while at_s < _LAST_SAVE_S:
        is_full = at_s == 7 * _SAVE_EVERY_S
        error = "No space left on device (consensus.safetensors)" if is_full else None
        saves.append(Save(from_s=at_s, until_s=at_s + 2.6, error=error))
        at_s += _SAVE_EVERY_S
    return saves
