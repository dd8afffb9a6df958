"""Which of the five modes a run uses.

What it is: the rule from the word that was asked for to a mode and its reason, and the
choice that `auto` makes once it is known who has joined.
What it is not: the mode's behaviour; `Mode` is only a name here.
Who drives it: `load` refuses early, the launcher resolves when the world forms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flodl_core.config.values import AUTO
from flodl_core.errors import ConfigError
from flodl_core.ids import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedMode:
    """The mode of a run and why it is that one."""

    mode: Mode
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """What one host brings to a world.

    Attributes:
        host: its label.
        devices: one device string a rank: `cpu:0`, `cuda:1`, …
        vendor: of its GPUs; None where it has none, or they are not known.
        nccl: version of the NCCL that its ranks can use; None where they can use none.
    """

    host: str
    devices: tuple[str, ...]
    vendor: str | None
    nccl: str | None


ALONE: Final = ResolvedMode(
    mode=Mode.CPU_SYNC, reason="auto: one rank has nobody to keep pace with"
)
ALONE_ON_GPU: Final = ResolvedMode(
    mode=Mode.CPU_CADENCE,
    reason="auto: one rank on a GPU, which its parameters leave at each average",
)
TOGETHER: Final = ResolvedMode(
    mode=Mode.CPU_CADENCE, reason="auto: ranks may differ in speed, and average through host memory"
)


def resolve_mode(requested: str, *, is_alone: bool = False, source: str = "given") -> ResolvedMode:
    """Return the mode that `requested` (a mode's name or `auto`) stands for.

    Args:
        requested: the word.
        is_alone: whether the world has one rank.
        source: where the word came from, for errors.

    Raises:
        ConfigError: there is no such mode, or NCCL is combined with Async.
    """
    word = requested.strip().lower()
    if word == AUTO:
        return ALONE if is_alone else TOGETHER
    if word == "nccl_async":
        raise ConfigError(
            "mode",
            requested,
            "Async cannot use NCCL: its ranks run on between averages, while every rank of a "
            "collective must enter it at the same point",
            source=source,
            fix="use cpu_async to let ranks run on, or nccl_cadence to average on GPUs",
        )
    known = [mode.value for mode in Mode]
    if word not in known:
        raise ConfigError(
            "mode",
            requested,
            f"there is no such mode; the modes are {', '.join(known)}",
            source=source,
            fix="give auto, cpu_cadence, cpu_async or cpu_sync, or a mode on NCCL",
        )
    mode = Mode(word)
    return ResolvedMode(mode=mode, reason=f"{mode}: as configured")


def choose_mode(hosts: Sequence[HostDevices], *, objection: str = "") -> ResolvedMode:
    """Return the mode that a formed world gets where nobody named one.

    Args:
        hosts: of the world, at least one.
        objection: why the run cannot average on GPUs whatever its hosts have; empty if it can.
    """
    devices = [device for host in hosts for device in host.devices]
    if len(devices) == 1:
        return ALONE if devices[0].startswith("cpu") else ALONE_ON_GPU
    why_not = objection or _why_not_nccl(hosts)
    if why_not:
        return ResolvedMode(
            mode=Mode.CPU_CADENCE,
            reason=f"auto: ranks average through host memory, since {why_not}",
        )
    return ResolvedMode(
        mode=Mode.NCCL_CADENCE,
        reason=(
            f"auto: every rank has a GPU of {hosts[0].vendor} to itself, with NCCL {hosts[0].nccl}"
        ),
    )


def _why_not_nccl(hosts: Sequence[HostDevices]) -> str:
    """Return what keeps these hosts from averaging on GPUs, in words; empty if nothing does."""
    first = hosts[0]
    for host in hosts:
        slow = next((one for one in host.devices if not one.startswith("cuda")), None)
        if slow is not None:
            return f"{slow} on {host.host} is no GPU"
        if len(set(host.devices)) < len(host.devices):
            return f"ranks of {host.host} share a GPU"
        if host.vendor != first.vendor:
            return f"{host.host} has GPUs of {host.vendor}, {first.host} of {first.vendor}"
        if host.nccl is None:
            return f"{host.host} has no nccl4py"
        if _series(host.nccl) != _series(first.nccl):
            return f"{host.host} has NCCL {host.nccl}, {first.host} has {first.nccl}"
    return ""


def _series(version: str | None) -> tuple[str, ...]:
    """Return major and minor of a version, which is what must agree."""
    return tuple((version or "").split(".")[:2])
