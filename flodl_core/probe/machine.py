"""What this machine is, as far as the system tells it without torch.

What it is: facts, each None where it cannot be found out.
What it is not: a judgement (`checks`), or anything of devices (`training.torch_facts`).
Who drives it: `flodl probe`, and the placed process of another host.
"""

import os
import platform
import shutil
import socket
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from flodl_core.units import KIB

_MEMORY = Path("/proc/meminfo")
_NETWORK = Path("/sys/class/net")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """One machine."""

    machine: str
    """What it calls itself."""
    system: str
    flodl: str
    python: str
    cores: int
    """Processors that this process may use."""
    memory_bytes: int | None
    memory_free_bytes: int | None
    disk_free_bytes: int | None
    """Of the file system that was asked about."""
    driver: str | None
    """Version of NVIDIA's driver."""
    nccl4py: str | None
    """Version of the binding that the NCCL modes need; None where it is not installed."""
    interfaces: tuple[str, ...] = ()
    """Network interfaces that are up, in the system's order."""


def read_machine(directory: Path, *, flodl: str) -> MachineFacts:
    """Return what this machine is.

    Args:
        directory: whose disk is looked at; its nearest parent that exists.
        flodl: this package's version.
    """
    memory = _memory()
    return MachineFacts(
        machine=platform.node() or "this machine",
        system=f"{platform.system()} {platform.release()}",
        flodl=flodl,
        python=platform.python_version(),
        cores=_cores(),
        memory_bytes=memory.get("MemTotal"),
        memory_free_bytes=memory.get("MemAvailable"),
        disk_free_bytes=_disk_free(directory),
        driver=driver_version(),
        nccl4py=_installed("nccl4py"),
        interfaces=_interfaces(),
    )


def driver_version() -> str | None:
    """Return the version of NVIDIA's driver; None where there is none that answers."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            found = pynvml.nvmlSystemGetDriverVersion()
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # of kinds of its own, or there is no such library
        return None
    return found.decode() if isinstance(found, bytes) else str(found)


def _interfaces() -> tuple[str, ...]:
    """Return what is up, or does not say."""
    try:
        names = [name for _, name in socket.if_nameindex()]
    except OSError:
        return ()
    return tuple(name for name in names if _state_of(name) != "down")


def _state_of(interface: str) -> str:
    try:
        return (_NETWORK / interface / "operstate").read_text().strip()
    except OSError:
        return "unknown"


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> dict[str, int]:
    """Return the fields of /proc/meminfo in bytes; none where there is no such file."""
    try:
        lines = _MEMORY.read_text().splitlines()
    except OSError:
        return {}
    pairs = [line.split() for line in lines]
    return {
        words[0].rstrip(":"): int(words[1]) * KIB
        for words in pairs
        if len(words) == 3 and words[2] == "kB"
    }


def _disk_free(directory: Path) -> int | None:
    place = directory.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return None


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
