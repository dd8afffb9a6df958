"""How long the controller has said nothing, as a process that may itself have slept sees it.

The coordinator speaks to every rank each second. A launcher that is stopped keeps its
connections, so only its silence shows it. Time in which this process did not run, being
stopped or robbed of the interpreter, is not the controller's silence: each look counts
for a look's length at most.
"""

from typing import Final

import anyio

from flodl_core.errors import RunLostError
from flodl_core.net import clock
from flodl_core.units import Seconds

LOOK_S: Final = 0.25
_MOST_A_LOOK_S: Final = 2 * LOOK_S


class SilenceWatch:
    """Counts the silence of one peer.

    Args:
        ceiling_s: how long it may last.
    """

    def __init__(self, ceiling_s: Seconds) -> None:
        self.ceiling_s = ceiling_s
        self._silent_s: Seconds | None = None
        self._looked_at: Seconds | None = None

    def expect(self) -> None:
        """Note that the peer owes words from now on, if it did not before; from any thread."""
        if self._silent_s is None:
            self._silent_s = 0.0

    def heard(self) -> None:
        """Note that the peer said something; from any thread."""
        self._silent_s = 0.0

    def look(self, now: Seconds) -> bool:
        """Count the time since the last look; return whether the silence is above its ceiling."""
        before, self._looked_at = self._looked_at, now
        if self._silent_s is None or before is None:
            return False
        self._silent_s += min(now - before, _MOST_A_LOOK_S)
        return self._silent_s > self.ceiling_s


async def watch_silence(watch: SilenceWatch) -> None:
    """Look again and again.

    Raises:
        RunLostError: the silence is above its ceiling.
    """
    while True:
        await anyio.sleep(LOOK_S)
        if watch.look(clock.now()):
            raise RunLostError(
                f"the controller has said nothing for {watch.ceiling_s:g} s",
                fix="look whether the launcher is stopped or its host is cut off",
            )
