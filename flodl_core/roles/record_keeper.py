"""Writes the records of a run each second and at its end, on a disk that may stop to answer.

What it is: calls that the loop leaves behind (`abandonable`), and what became of the last one.
What it is not: what is written, nor when something is worth it.
Who drives it: the launcher's room.
"""

from collections.abc import Callable
from typing import Protocol

import anyio

from flodl_core.roles.abandonable import run_abandonable
from flodl_core.units import Seconds

WRITE_EVERY_S: Seconds = 1.0
END_S: Seconds = 15.0
"""How long the end of a run waits for its records to be on disk."""


class Recorder(Protocol):
    """What writes records; both may block for as long as a disk does."""

    def write(self) -> None:
        """Write what is waiting."""

    def close(self) -> None:
        """Write what is left."""


class RecordKeeper:
    """Keeps the records of one run.

    Args:
        recorder: writes them.
        also_close: closes what else lies on that disk; None if nothing does.
        end_s: ceiling of the last write.
    """

    def __init__(
        self, recorder: Recorder, *, also_close: Callable[[], None] | None, end_s: Seconds = END_S
    ) -> None:
        self._recorder = recorder
        self._also_close = also_close
        self._end_s = end_s
        self._is_lost = False

    async def run(self) -> None:
        """Write each second, until cancelled."""
        while True:
            await anyio.sleep(WRITE_EVERY_S)
            await run_abandonable(self._recorder.write, name="records")

    async def end(self) -> bool:
        """Write what is left; return whether the disk took it, now and whenever it was tried.

        Not cancelled with its caller. To be called again when more is there.
        """
        if not self._is_lost:
            self._is_lost = True
            with anyio.move_on_after(self._end_s, shield=True):
                await run_abandonable(self._close, name="records")
                self._is_lost = False
        return not self._is_lost

    def _close(self) -> None:
        if self._also_close is not None:
            self._also_close()
        self._recorder.close()
