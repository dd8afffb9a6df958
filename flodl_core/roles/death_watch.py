"""How the children of a host died: in words, and whether the kernel ran out of memory.

What it is: the count of out-of-memory kills that the system keeps for this process's
group, and the record that is written for a rank that could say nothing itself.
What it is not: the detection of a death; that is the system's wait.
Who drives it: `host_children`.
"""

from collections import deque
from pathlib import Path
from typing import Final

from flodl_core.checkpoint.death_record import (
    DeathFacts,
    DeathKind,
    death_path,
    write_death_record,
)
from flodl_core.ids import ExitCode, HostName, Rank
from flodl_core.messages.join import RankExited
from flodl_core.net import clock
from flodl_core.net.children import ExitStatus
from flodl_core.units import Seconds

OUT_OF_MEMORY: Final = "out of memory"
KILL_TAKES_S: Final[Seconds] = 30.0
"""Longest time from the kernel's count to the end of the process that it chose."""
_COUNTER: Final = "oom_kill"
_SPOKEN_FOR: Final = (ExitCode.DONE, ExitCode.JOIN_RUN_LOST)
"""Exit codes of a rank that are no death."""


def end_words(exited: RankExited) -> str:
    """Return how a rank's process ended, such as `SIGKILL (out of memory)`."""
    how = exited.signal or f"exit code {exited.code}"
    return f"{how} ({exited.cause})" if exited.cause else how


class MemoryWatch:
    """Notices that the kernel has ended a process of this group for want of memory.

    The kernel counts a kill when it decides on it; the process ends when its memory is
    given back, which takes a second or more for many gigabytes. So a kill that was seen
    waits for its process.

    Args:
        root: of the file system; another one in tests.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._counts = self._read()
        self._kills: deque[Seconds] = deque()

    def look(self, now: Seconds) -> None:
        """Note the kills that the kernel counted since it was last looked at."""
        before, self._counts = self._counts, self._read()
        rises = [count - before.get(path, count) for path, count in self._counts.items()]
        self._kills.extend([now] * max(rises, default=0))
        while self._kills and self._kills[0] < now - KILL_TAKES_S:
            self._kills.popleft()

    def take_kill(self, now: Seconds) -> bool:
        """Return whether the kernel killed lately, for a process that was seen to end by it.

        A kill explains one end.
        """
        self.look(now)
        if not self._kills:
            return False
        self._kills.popleft()
        return True

    def _read(self) -> dict[Path, int]:
        """Return the counts of this process's groups, else that of the whole machine."""
        found = {
            path: count
            for path in self._group_files()
            if (count := _read_counter(path)) is not None
        }
        if not found:
            path = self._root / "proc/vmstat"
            count = _read_counter(path)
            return {} if count is None else {path: count}
        return found

    def _group_files(self) -> list[Path]:
        """Return the files of both kinds of control groups that may hold the count."""
        try:
            lines = (self._root / "proc/self/cgroup").read_text().splitlines()
        except OSError:
            return []
        base = self._root / "sys/fs/cgroup"
        files: list[Path] = []
        for line in lines:
            _, controllers, group = line.split(":", 2)
            inside = group.strip("/")
            if not controllers:
                files += [base / inside / "memory.events", base / "memory.events"]
            elif "memory" in controllers.split(","):
                memory = base / "memory"
                files += [memory / inside / "memory.oom_control", memory / "memory.oom_control"]
        return list(dict.fromkeys(files))


class DeathRecorder:
    """Writes the record of a rank of this host that could not write it itself.

    Args:
        save_path: stem of what ranks of this host write.
        host: this host's label.
    """

    def __init__(self, save_path: str, host: HostName) -> None:
        self._save_path = save_path
        self._host = host
        self._world_size = 0
        self._marks: dict[Rank, int | None] = {}

    def begin(self, rank: Rank, world_size: int) -> None:
        """Remember the record that an earlier life of this rank may have left."""
        self._world_size = world_size
        self._marks[rank] = self._mark(rank)

    def record(
        self, rank: Rank, status: ExitStatus, *, is_out_of_memory: bool, evicted_for: str | None
    ) -> None:
        """Write how a rank ended, unless it ended well or has said so itself.

        Args:
            rank: whose process ended.
            status: how.
            is_out_of_memory: whether the kernel ran out of memory meanwhile.
            evicted_for: why the run ended it; None if it did not.
        """
        if status.signal is None and (
            status.code in _SPOKEN_FOR or self._mark(rank) != self._marks.get(rank)
        ):
            return
        kind, error = DeathKind.SIGNAL, f"its process was ended by {status}"
        if evicted_for is not None:
            kind, error = DeathKind.EVICTED, f"evicted: {evicted_for}"
        elif status.signal is None:
            kind, error = DeathKind.EXIT, f"its process ended with {status}"
        elif is_out_of_memory:
            kind, error = DeathKind.OUT_OF_MEMORY, f"{OUT_OF_MEMORY}: {error}"
        death = DeathFacts(
            rank=rank,
            world_size=self._world_size,
            host=self._host,
            kind=kind,
            error=error,
            signal=status.signal,
            exit_code=status.code if status.signal is None else None,
        )
        write_death_record(self._save_path, death, at=clock.utc_iso())

    def _mark(self, rank: Rank) -> int | None:
        try:
            return death_path(self._save_path, rank).stat().st_mtime_ns
        except OSError:
            return None


def _read_counter(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(" ")
        if name == _COUNTER and value.strip().isdecimal():
            return int(value)
    return None
