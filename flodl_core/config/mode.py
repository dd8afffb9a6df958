"""Which of the five modes a run uses.

What it is: the rule from the word that was asked for to a mode and its reason.
What it is not: the mode's behaviour; `Mode` is only a name here.
Who drives it: `load` refuses early, the launcher resolves when the world forms.
"""

from dataclasses import dataclass
from typing import Final

from flodl_core.config.values import AUTO
from flodl_core.errors import ConfigError
from flodl_core.ids import Mode

AVAILABLE: Final = (Mode.CPU_SYNC, Mode.CPU_CADENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedMode:
    """The mode of a run and why it is that one."""

    mode: Mode
    reason: str


ALONE: Final = ResolvedMode(
    mode=Mode.CPU_SYNC, reason="auto: one rank has nobody to keep pace with"
)
TOGETHER: Final = ResolvedMode(
    mode=Mode.CPU_CADENCE,
    reason="auto: ranks may differ in speed, and this version averages through host memory only",
)


def resolve_mode(requested: str, *, is_alone: bool = False, source: str = "given") -> ResolvedMode:
    """Return the mode that `requested` (a mode's name or `auto`) stands for.

    Args:
        requested: the word.
        is_alone: whether the world has one rank.
        source: where the word came from, for errors.

    Raises:
        ConfigError: there is no such mode, NCCL is combined with Async, or this
            version does not run the mode.
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
            fix="give auto, cpu_cadence or cpu_sync",
        )
    mode = Mode(word)
    if mode not in AVAILABLE:
        raise ConfigError(
            "mode",
            requested,
            f"this version runs {' and '.join(AVAILABLE)} only",
            source=source,
            fix="give one of those, or auto to have the mode chosen",
        )
    return ResolvedMode(mode=mode, reason=f"{mode}: as configured")
