"""Which of the five modes a run uses.

What it is: the rule from the word that was asked for to a mode and its reason.
What it is not: the mode's behaviour; `Mode` is only a name here.
Who drives it: `load` refuses early, the launcher resolves when the world forms.
"""

from dataclasses import dataclass
from typing import Final

from flodl_core.config.schema import AUTO
from flodl_core.errors import ConfigError
from flodl_core.ids import Mode

AVAILABLE: Final = (Mode.CPU_SYNC,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedMode:
    """The mode of a run and why it is that one."""

    mode: Mode
    reason: str


def resolve_mode(requested: str, *, source: str = "given") -> ResolvedMode:
    """Return the mode that `requested` (a mode's name or `auto`) stands for.

    Raises:
        ConfigError: there is no such mode, NCCL is combined with Async, or this
            version does not run the mode.
    """
    word = requested.strip().lower()
    if word == AUTO:
        return ResolvedMode(
            mode=Mode.CPU_SYNC, reason="auto: cpu_sync is the mode that this version runs"
        )
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
            fix="give auto or cpu_sync",
        )
    mode = Mode(word)
    if mode not in AVAILABLE:
        raise ConfigError(
            "mode",
            requested,
            f"this version runs {', '.join(AVAILABLE)} only",
            source=source,
            fix="give cpu_sync, or auto to have the mode chosen",
        )
    return ResolvedMode(mode=mode, reason=f"{mode}: as configured")
