"""What is wrong with a machine for training, if anything: one line a thing looked at.

What it is: rules on facts, each with its fix.
What it is not: the looking (`machine`, `roles.probing`, `reach`).
Who drives it: `flodl probe`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from flodl_core.probe.facts import DeviceProbe, TorchFacts
from flodl_core.probe.machine import MachineFacts
from flodl_core.telemetry.quantities import show_bytes
from flodl_core.units import MIB, Seconds

LEAST_MEMORY_BYTES: Final = 512 * MIB
LEAST_DISK_BYTES: Final = 256 * MIB
SKEW_S: Final[Seconds] = 5.0
_BUILT: Final = 1_704_067_200.0
"""The first second of 2024; a clock before it was never set."""


class Finding(StrEnum):
    """How a thing is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at."""

    name: str
    finding: Finding
    detail: str
    fix: str = ""


def check_machine(facts: MachineFacts) -> list[Check]:
    """Return how system, memory and disk are."""
    return [
        Check(
            name="machine",
            finding=Finding.OK,
            detail=f"{facts.machine}, {facts.system}, {facts.cores} cores",
        ),
        Check(
            name="software",
            finding=Finding.OK,
            detail=f"flodl {facts.flodl}, Python {facts.python}",
        ),
        _enough(
            "memory",
            facts.memory_free_bytes,
            LEAST_MEMORY_BYTES,
            fix="end other programs; each rank needs several times its model",
        ),
        _enough(
            "disk",
            facts.disk_free_bytes,
            LEAST_DISK_BYTES,
            fix="free some, or give another --run-dir",
        ),
    ]


def check_torch(facts: TorchFacts, machine: MachineFacts) -> list[Check]:
    """Return how torch, its devices, the driver and NCCL are."""
    gpus = [one for one in facts.devices if one.device.startswith("cuda")]
    kind = f", for CUDA {facts.cuda}" if facts.cuda else ", without CUDA"
    found = [Check(name="torch", finding=Finding.OK, detail=f"{facts.torch}{kind}")]
    found += [_device(one) for one in facts.devices]
    if gpus:
        found.append(_driver(machine))
    if len(gpus) > 1:
        found.append(_nccl(facts, machine))
    return found


def check_clock(utc_s: Seconds, *, controller_utc_s: Seconds | None) -> Check:
    """Return how this machine's clock is, beside the controller's where that is known."""
    if utc_s < _BUILT:
        return Check(
            name="clock",
            finding=Finding.ERROR,
            detail="it was never set",
            fix="set the clock, with NTP if there is a network",
        )
    if controller_utc_s is None:
        return Check(name="clock", finding=Finding.OK, detail="set")
    skew_s = utc_s - controller_utc_s
    where = "ahead of" if skew_s > 0 else "behind"
    far = abs(skew_s) > SKEW_S
    return Check(
        name="clock",
        finding=Finding.WARNING if far else Finding.OK,
        detail=f"{abs(skew_s):.0f} s {where} the controller's",
        fix="run NTP on both; logs of two hosts cannot be compared" if far else "",
    )


def has_errors(checks: list[Check]) -> bool:
    """Return whether anything keeps this machine from training."""
    return any(check.finding is Finding.ERROR for check in checks)


def _enough(name: str, free_bytes: int | None, least_bytes: int, *, fix: str) -> Check:
    if free_bytes is None:
        return Check(name=name, finding=Finding.WARNING, detail="could not be found out")
    few = free_bytes < least_bytes
    return Check(
        name=name,
        finding=Finding.ERROR if few else Finding.OK,
        detail=f"{show_bytes(free_bytes)} free",
        fix=f"at least {show_bytes(least_bytes)} are needed: {fix}" if few else "",
    )


def _device(one: DeviceProbe) -> Check:
    memory = ""
    if one.memory_bytes is not None:
        free, total = show_bytes(one.memory_free_bytes), show_bytes(one.memory_bytes)
        memory = f", {free} of {total} free"
    if one.error is not None:
        return Check(
            name=one.device,
            finding=Finding.ERROR,
            detail=f"{one.title}: {one.error}",
            fix="mend its driver, or leave it out with --devices",
        )
    return Check(name=one.device, finding=Finding.OK, detail=f"{one.title}{memory}")


def _driver(machine: MachineFacts) -> Check:
    if machine.driver is not None:
        return Check(name="driver", finding=Finding.OK, detail=machine.driver)
    return Check(
        name="driver",
        finding=Finding.WARNING,
        detail="NVIDIA's management library does not answer",
        fix="the console will show no GPU use; see whether nvidia-smi works",
    )


def pick_interface(interfaces: Sequence[str]) -> str | None:
    """Return which interface NCCL takes between hosts where none is named; None if there is none.

    InfiniBand's first, then whatever is neither Docker's nor the loopback, then those (NCCL
    user guide, NCCL_SOCKET_IFNAME).
    """

    def last(name: str) -> int:
        ranks = {"ib": 0, "docker": 2, "lo": 3}
        return next((place for start, place in ranks.items() if name.startswith(start)), 1)

    return min(interfaces, key=last, default=None)


def _nccl(facts: TorchFacts, machine: MachineFacts) -> Check:
    if facts.nccl is not None and machine.nccl4py is not None:
        between = pick_interface(machine.interfaces)
        detail = f"{facts.nccl}, nccl4py {machine.nccl4py}"
        if between is not None:
            detail += f"; between hosts over {between}, unless --nccl-interface names another"
        return Check(name="NCCL", finding=Finding.OK, detail=detail)
    missing = "torch has none" if facts.nccl is None else "nccl4py is not installed"
    return Check(
        name="NCCL",
        finding=Finding.WARNING,
        detail=f"{missing}, so that these GPUs are averaged by the CPU modes",
        fix="pip install 'flodl[nccl]'",
    )
