"""What the operating system knows of a run's processes: who lives, what they map, who listens.

A run's processes are found by a variable in their environment, which every child
inherits, also one that has lost its parent. Linux only.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

MARK = "PROCESS_TEST_RUN"
"""Name of the variable; its value is one of a kind for each run."""

_LISTENING = "0A"
_LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a run."""

    pid: int
    name: str
    """launcher, inspector, rank3, loader rank3, agent blue or relay blue."""

    def __str__(self) -> str:
        return f"{self.name} ({self.pid})"

    def is_alive(self) -> bool:
        """Whether it runs; one that has ended and waits for its parent does not."""
        return state_letter(self.pid) not in (None, "Z", "X")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; it must be there."""
        os.kill(self.pid, number)

    def status_kb(self, field: str) -> int:
        """A field of /proc/PID/status in kilobytes, such as VmRSS or VmHWM."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
        raise AssertionError(f"{self} has no {field}")

    def maps(self) -> str:
        """Everything that it has mapped."""
        return Path(f"/proc/{self.pid}/maps").read_text()

    def open_descriptors(self) -> int:
        """How many descriptors it holds."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())


def state_letter(pid: int) -> str | None:
    """R, S, D, T, Z …; None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def parent_of(pid: int) -> int | None:
    """Return the parent's id; None if there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def find_processes(mark: str) -> list[Process]:
    """Every living process that carries the mark, by name."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        process = Process(int(entry.name), name_of(words))
        if process.is_alive():
            found.append(process)
    return sorted(found, key=lambda one: one.name)


def name_of(words: list[str]) -> str:
    """The role that a command line starts."""
    host = words[words.index("--host") + 1] if "--host" in words else ""
    if "flodl_core.roles.inspector" in words:
        return "inspector"
    if "flodl_core.roles.rank" in words:
        return words[words.index("flodl_core.roles.rank") + 1]
    if "flodl_core.training.loader_server" in words:
        return f"loader {words[words.index('flodl_core.training.loader_server') + 1]}"
    if "flodl_core.roles.relay" in words:
        return f"relay {host}"
    if "join" in words:
        return f"agent {host}"
    if "headless" in words:
        return "launcher"
    return " ".join(words).strip() or "?"


def await_ends(processes: Iterable[Process], within_s: float) -> list[Process]:
    """Wait for all of them to end; returns those that did not in time."""
    left = list(processes)

    def all_ended() -> bool:
        left[:] = [one for one in left if one.is_alive()]
        return not left

    look_until(all_ended, within_s)
    return left


def look_until(look: Callable[[], T], within_s: float) -> T:
    """Look again and again until the answer is true, or for so long; returns the last answer."""
    pause = threading.Event()
    for _ in range(max(1, int(within_s / _LOOK_EVERY_S))):
        if answer := look():
            return answer
        pause.wait(_LOOK_EVERY_S)
    return look()


def listening_ports(pids: Iterable[int] | None = None) -> set[int]:
    """TCP ports that somebody listens on; only those of these processes if they are given."""
    inodes = None if pids is None else _socket_inodes(pids)
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and (inodes is None or fields[9] in inodes):
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def _socket_inodes(pids: Iterable[int]) -> set[str]:
    inodes = set()
    for pid in pids:
        try:
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                target = entry.readlink().name
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        except OSError:
            continue
    return inodes


def shared_memory_files() -> set[str]:
    """Names in /dev/shm."""
    return {entry.name for entry in Path("/dev/shm").iterdir()}


def unheld(names: Iterable[str]) -> set[str]:
    """Those names in /dev/shm that no living process has mapped or open: what was left there."""
    left = {name for name in names if Path("/dev/shm", name).exists()}
    for entry in Path("/proc").iterdir() if left else ():
        if not entry.name.isdecimal():
            continue
        try:
            held = (entry / "maps").read_text()
            held += "\n".join(str(fd.readlink()) for fd in (entry / "fd").iterdir())
        except OSError:
            continue
        left = {name for name in left if f"/dev/shm/{name}" not in held}
    return left
