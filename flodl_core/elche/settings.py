"""What a user may choose about the cadence, checked on construction, and the fixed constants.

What it is: the knobs of `elche.balancer` and the numbers of its rules.
What it is not: a reader of configuration; whoever resolves options fills it in.
Who drives it: the coordinator builds one a run.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from flodl_core.errors import ConfigError

TRUST_WINDOW: Final = 5
"""Windows whose mean is a rank's speed."""
MISSES_TO_FORGET: Final = 5
"""Windows in a row without a batch after which a rank's speed is forgotten."""
COHORT_BAND: Final = 0.15
"""Ranks within this part of the slowest are the slow cohort."""
DOMINANCE_MARGIN: Final = 0.10
"""By this part a challenger must be slower than the anchor rank to replace it."""
MAX_SPEED_RATIO: Final = 64.0
"""No rank gets more than this many times the anchor."""
DEAD_ZONE: Final = 0.05
"""Changes of a count within this part of it are ignored."""
GROWTH_STEP_CAP: Final = 2.0
"""The anchor at most doubles at once."""
WARMUP_MARGIN: Final = 2.0
"""While warming up, overhead must exceed this many times the target."""
OVERHEAD_WINDOW: Final = 3
"""Reports whose median is the overhead."""
VERDICTS_TO_REARM: Final = 5
"""Stable verdicts in a row after which growth is allowed again."""
STABLE_AT: Final = 5
"""Calibrations with which the phase is Stable."""
MATURE_AT: Final = 20
"""Calibrations with which the phase is Mature."""
MARGINAL_VALID_WINDOWS: Final = 20
"""How long a rank's last delivered sample stands in for one that a window lacks."""
MIN_OVERHEAD_TARGET: Final = 0.01
MAX_OVERHEAD_TARGET: Final = 0.50


class TimingScale(StrEnum):
    """On which scale speeds are compared."""

    DELIVERED = "delivered"
    """Arrival to arrival on the coordinator's clock: Cadence and Async."""
    COMPUTE = "compute"
    """The step alone: Sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElcheSettings:
    """The knobs; anchors and counts are batches a window.

    Attributes:
        overhead_target: part of a window that averaging may take; clamped to 0.01 … 0.50.
        initial_anchor: the slow rank's count at the start; clamped to the bounds below.
        min_anchor: growth never ends below it; None is the initial anchor.
        max_anchor: growth never goes above it.
        max_batch_diff: no count exceeds the smallest by more; 0 makes all equal, None is
            no bound.
        pinned_counts: by rank; if given, counts never change.
        growth: whether the anchor may grow. Never in Sync.
        relax_up: whether each calm cycle adds a batch to the anchor, whatever averaging costs.
        scale: on which scale speeds are compared.
    """

    overhead_target: float = 0.05
    initial_anchor: int = 10
    min_anchor: int | None = None
    max_anchor: int = 1000
    max_batch_diff: int | None = None
    pinned_counts: tuple[int, ...] | None = None
    growth: bool = True
    relax_up: bool = False
    scale: TimingScale = TimingScale.DELIVERED

    def __post_init__(self) -> None:
        if not math.isfinite(self.overhead_target):
            raise _refusal("overhead_target", self.overhead_target, "it is not a finite number")
        clamped = min(max(self.overhead_target, MIN_OVERHEAD_TARGET), MAX_OVERHEAD_TARGET)
        object.__setattr__(self, "overhead_target", clamped)
        for name, value in (
            ("initial_anchor", self.initial_anchor),
            ("min_anchor", self.min_anchor),
            ("max_anchor", self.max_anchor),
        ):
            if value is not None and value < 1:
                raise _refusal(name, value, "a window has at least 1 batch")
        if self.min_anchor is not None and self.min_anchor > self.max_anchor:
            raise _refusal(
                "min_anchor", self.min_anchor, f"it is above max_anchor {self.max_anchor}"
            )
        if self.max_batch_diff is not None and self.max_batch_diff < 0:
            raise _refusal("max_batch_diff", self.max_batch_diff, "a difference is 0 or more")
        if self.pinned_counts is not None and (
            not self.pinned_counts or min(self.pinned_counts) < 1
        ):
            raise _refusal("pinned_counts", self.pinned_counts, "each rank needs at least 1 batch")

    @property
    def lowest_anchor(self) -> int:
        """The anchor that growth never ends below."""
        lowest = self.initial_anchor if self.min_anchor is None else self.min_anchor
        return min(lowest, self.max_anchor)

    @property
    def first_anchor(self) -> int:
        """The anchor of the first window."""
        return min(max(self.initial_anchor, self.lowest_anchor), self.max_anchor)


def _refusal(field: str, value: object, reason: str) -> ConfigError:
    return ConfigError(field, value, reason, source="elche settings", fix=_FIXES[field])


_FIXES: Final = {
    "overhead_target": "give a number from 0.01 to 0.50, such as 0.05",
    "initial_anchor": "give 1 or more; 10 is the default",
    "min_anchor": "give 1 or more, and at most max_anchor",
    "max_anchor": "give 1 or more; 1000 is the default",
    "max_batch_diff": "give 0 or more, or leave it out",
    "pinned_counts": "give one number of 1 or more for each rank, such as 10,20",
}
