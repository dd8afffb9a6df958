"""Whether collectives go over a stand-in, as in tests on machines without a GPU.

Tests say so in the environment of the processes that they start; no setting does, and a
run that anybody else starts has none.
"""

from typing import Final

from flodl_core.net.children import own_environment

STAND_IN: Final = "FLODL_CHILD_STAND_IN"
"""Set by tests only."""


def has_stand_in() -> bool:
    """Return whether this process was started by a test that has no GPU."""
    return bool(own_environment().get(STAND_IN))
