"""What the operating system says of one process, each second."""

import os
from pathlib import Path

from flodl_core.ids import Rank
from flodl_core.messages.join import HostStats

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
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
