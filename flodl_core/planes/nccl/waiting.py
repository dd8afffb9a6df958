"""How the plane waits: it polls, quickly at first, and lets the interpreter go in between."""

import time
from collections.abc import Iterator

from flodl_core.net import clock
from flodl_core.units import Seconds

POLL_S: Seconds = 0.00005
"""Between two looks, once a wait is longer than a collective usually takes."""

_EAGER_S: Seconds = 0.002
"""How long a wait looks without a pause; a sleep costs more than a small collective."""


def looks() -> Iterator[Seconds]:
    """Yield the age of a wait, again and again; pauses in between, the shorter the younger."""
    began = clock.now()
    while True:
        age = clock.now() - began
        yield age
        time.sleep(0.0 if age < _EAGER_S else POLL_S)
