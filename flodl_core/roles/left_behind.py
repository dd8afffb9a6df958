"""What SIGKILL does not end is named.

What it is: the names of a host's processes that were waited for in vain (`await_killed`), in
its log and in its last word.
Who drives it: `host_children` and `host_life`.
"""

from collections.abc import Iterable
from pathlib import Path

import anyio

from flodl_core.ids import HostName
from flodl_core.net import clock
from flodl_core.roles.abandonable import run_abandonable
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.units import Seconds

TELL_S: Seconds = 1.0
"""For the line in the log; the disk that holds a process may be the one of the log."""


class LeftBehind:
    """The processes of one host that cannot be killed, each told once.

    Args:
        host: this host's label.
        log_path: where that is written down; no file is made before there is something.
    """

    def __init__(self, host: HostName, log_path: Path) -> None:
        self._host = host
        self._log_path = log_path
        self._names: list[str] = []

    def __contains__(self, name: str) -> bool:
        """Return whether a process is among them."""
        return name in self._names

    def say_after(self, said: str) -> str:
        """Return a clause with theirs behind it, such as `done; rank 3 cannot be killed`."""
        return "; ".join([said, *(f"{name} cannot be killed" for name in self._names)])

    async def add(self, names: Iterable[str]) -> None:
        """Take some and write them into the host's log; not cancelled with the caller.

        Args:
            names: as they are told, such as `rank 3`.
        """
        new = [name for name in names if name not in self._names]
        self._names += new
        if new:
            with anyio.move_on_after(TELL_S, shield=True):
                await run_abandonable(lambda: self._write(new), name="host log")

    def _write(self, names: list[str]) -> None:
        log = ProcessLog(self._log_path, host=self._host, process="host", utc_iso=clock.utc_iso)
        for name in names:
            log.error("cannot_be_killed", process=name)
        log.close()
