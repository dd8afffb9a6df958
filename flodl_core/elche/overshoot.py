"""How far a rank may run on beyond its count before the others have done theirs.

What it is: one number of batches that rises while averages are calm and falls back when
one is not. What it buys is that a fast rank need not wait for the moment at which a slow
one ends; what it costs is that models may drift by so many batches more.
What it is not: a count; those follow the speeds.
Who drives it: `coordinator.cadence`, once a verdict, where ranks run on.
"""

from typing import Final

from flodl_core.elche.guards import NudgeDown, Stable, Verdict
from flodl_core.errors import ConfigError

OVERSHOOT_START: Final = 3
OVERSHOOT_CEILING: Final = 15


class Overshoot:
    """The overshoot of one run.

    Args:
        pinned: batches for good, 0 or more; None lets verdicts decide.

    Raises:
        ConfigError: it is negative.

    Attributes:
        batches: what it is now.
    """

    def __init__(self, pinned: int | None = None) -> None:
        if pinned is not None and pinned < 0:
            raise ConfigError(
                "overshoot",
                pinned,
                "a rank cannot run on by less than no batch",
                source="elche settings",
                fix="give 0 or more, or leave it out",
            )
        self._is_pinned = pinned is not None
        self.batches = OVERSHOOT_START if pinned is None else pinned

    def judge(self, verdict: Verdict) -> None:
        """Follow a verdict: one more where it is Stable, back to the start after a nudge."""
        if self._is_pinned:
            return
        if isinstance(verdict, Stable):
            self.batches = min(self.batches + 1, OVERSHOOT_CEILING)
        elif isinstance(verdict, NudgeDown):
            self.batches = OVERSHOOT_START
