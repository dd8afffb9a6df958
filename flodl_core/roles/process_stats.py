"""What the operating system says of one process, each second, and of those under it."""

import contextlib
import os
from pathlib import Path

from flodl_core.ids import Rank
from flodl_core.messages.join import HostStats

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LOADER = b"flodl_core.training.loader_server"
_STATE, _USER, _SYSTEM, _RESIDENT = 0, 11, 12, 21


def read_host_stats(rank: Rank, pid: int) -> HostStats | None:
    """Return processor time, state letter and resident bytes; None if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    if len(fields) <= _RESIDENT:
        return None
    return HostStats(
        rank=rank,
        cpu_s=(int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS_A_SECOND,
        state=fields[_STATE],
        rss=int(fields[_RESIDENT]) * _PAGE_BYTES,
    )


def find_loader_workers(pid: int) -> list[int]:
    """Return the loader workers of a rank: what is forked from the server that it started.

    Only these are sure to take SIGUSR1 as a question; it ends another process.
    """
    servers = [child for child in _children(pid) if _is_loader(child)]
    return [one for server in servers for one in _children(server) if _is_loader(one)]


def _children(pid: int) -> list[int]:
    """Return the processes started by any thread of a process."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return sorted(found)


def _is_loader(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return _LOADER in words
