"""How the plane waits: it polls, quickly at first, and lets the interpreter go in between."""

import select
import time
from collections.abc import Iterator

from flodl_core.net import clock
from flodl_core.units import Seconds

POLL_S: Seconds = 0.00005
"""Between two looks, once a wait is longer than a collective usually takes."""

_EAGER_S: Seconds = 0.002
"""How long a wait looks without a pause; even a sleep of 0 s takes 50 µs of the kernel's slack."""


def looks() -> Iterator[Seconds]:
    """Yield the age of a wait, again and again; others run in between, later with a pause."""
    began = clock.now()
    while True:
        age = clock.now() - began
        yield age
        if age < _EAGER_S:
            select.select((), (), (), 0.0)
        else:
            time.sleep(POLL_S)
