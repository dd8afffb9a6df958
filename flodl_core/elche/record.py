"""What a checkpoint keeps of the cadence, and how it is read back.

What it is: one frozen record, to and from plain values.
What it is not: a file; the bundle's meta holds it.
Who drives it: `elche.balancer` makes and takes it; saves and resume carry it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from flodl_core.errors import CheckpointError
from flodl_core.ids import Rank
from flodl_core.units import Milliseconds

RecordValue: TypeAlias = int | str | list[float] | None


class ElchePhase(StrEnum):
    """How much is known; it only ever goes forward."""

    PROBE = "probe"
    WARMUP = "warmup"
    STABLE = "stable"
    MATURE = "mature"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElcheRecord:
    """The state of the cadence at a commit.

    Attributes:
        anchor: batches a window of the anchor rank.
        smoothed_ms_per_batch: by rank; 0 where nothing is known.
        calibration_count: reports that measured something.
        trend_history: the guard's, oldest first.
        guard: the name of that guard; no other one takes its history up.
    """

    anchor: int
    anchor_rank: Rank | None
    smoothed_ms_per_batch: tuple[Milliseconds, ...]
    phase: ElchePhase
    calibration_count: int
    trend_history: tuple[float, ...] = ()
    guard: str = "level"

    def to_values(self) -> dict[str, RecordValue]:
        """Return plain values, as JSON takes them."""
        return {
            "anchor": self.anchor,
            "anchor_rank": self.anchor_rank,
            "smoothed_ms_per_batch": list(self.smoothed_ms_per_batch),
            "phase": self.phase.value,
            "calibration_count": self.calibration_count,
            "trend_history": list(self.trend_history),
            "guard": self.guard,
        }

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> "ElcheRecord":
        """Read what `to_values` returned, from a file that may be damaged.

        Raises:
            CheckpointError: a value is missing or is none that a record can hold.
        """
        try:
            return cls(
                anchor=_whole(values["anchor"], least=1),
                anchor_rank=_rank(values["anchor_rank"]),
                smoothed_ms_per_batch=_numbers(values["smoothed_ms_per_batch"], least=0.0),
                phase=ElchePhase(str(values["phase"])),
                calibration_count=_whole(values["calibration_count"], least=0),
                trend_history=_numbers(values.get("trend_history", ()), least=-math.inf),
                guard=str(values.get("guard", "level")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the saved state of the cadence cannot be read ({error})",
                fix="resume without it: speeds are measured anew within a few windows",
            ) from error


def _whole(value: object, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{value!r} is no whole number of {least} or more")
    return value


def _rank(value: object) -> Rank | None:
    return None if value is None else Rank(_whole(value, least=0))


def _numbers(value: object, *, least: float) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r} is no list of numbers")
    for item in value:
        is_number = isinstance(item, int | float) and not isinstance(item, bool)
        if not is_number or not math.isfinite(item) or item < least:
            raise ValueError(f"{item!r} is no finite number of {least:g} or more")
    return tuple(float(item) for item in value)
