"""Why the counts are what they are, in one sentence each.

What it is: words for the decisions of `elche.balancer`, so that state, records and logs
say the same.
What it is not: a decision.
Who drives it: `elche.balancer`.
"""

from dataclasses import dataclass

from flodl_core.elche.growth import GrowthLatch, Proposal
from flodl_core.elche.settings import ElcheSettings
from flodl_core.ids import Rank

NOTHING_YET = "nothing is measured yet"
NOTHING_MEASURED = "the last window measured nothing: the counts stand"
PINNED = "the counts are pinned"
RESTORED = "the saved cadence goes on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a sentence about the window needs.

    Attributes:
        cap_batches: the window cap if it binds.
    """

    anchor: int
    anchor_rank: Rank | None
    overhead: float | None
    proposal: Proposal | None
    feeds_growth: bool
    cap_batches: int | None


def after_report(now: Standing, *, latch: GrowthLatch, settings: ElcheSettings) -> str:
    """Say what the window costs and what follows from it."""
    anchor = f"{now.anchor} batches of rank {now.anchor_rank}"
    if now.overhead is None:
        return f"counts follow the speeds: the anchor is {anchor}"
    takes = _takes(now.overhead, settings)
    if now.proposal is not None:
        return f"{takes}: growth from {anchor} to {now.proposal.anchor} waits for the guard"
    if now.overhead <= settings.overhead_target:
        return f"{takes}: the anchor stays at {anchor}"
    return f"{takes}: {_why_no_growth(now, latch=latch, settings=settings)}"


def after_growth(before: int, proposal: Proposal, *, rank: Rank, settings: ElcheSettings) -> str:
    """Say that a growth was committed."""
    takes = _takes(proposal.overhead, settings)
    return f"{takes}: the anchor grew from {before} to {proposal.anchor} batches of rank {rank}"


def after_relaxing(before: int, after: int) -> str:
    """Say that a calm cycle lengthened the window."""
    return f"a calm cycle: the anchor went from {before} to {after} batches, as relax_up asks"


def after_shut(before: int, after: int, reason: str) -> str:
    """Say that a guard spoke against longer windows, and whether the anchor shrank."""
    if after == before:
        return f"growth is off: {reason}"
    return f"growth is off and the anchor shrank from {before} to {after} batches: {reason}"


def anchor_unmeasured(rank: Rank | None) -> str:
    """Say that the anchor rank's speed is not known."""
    return f"anchor rank {rank} measured nothing: the counts stand"


def rank_gone(rank: Rank, left: int) -> str:
    """Say who is gone."""
    return f"rank {rank} is gone: {left} go on"


def other_world(saved: int, world: int) -> str:
    """Say that a saved cadence is of no use."""
    return f"the saved cadence is of {saved} ranks, not {world}: speeds are measured anew"


def _takes(overhead: float, settings: ElcheSettings) -> str:
    return f"averaging takes {overhead:.1%} of a window, target {settings.overhead_target:.0%}"


def _why_no_growth(now: Standing, *, latch: GrowthLatch, settings: ElcheSettings) -> str:
    if not settings.growth:
        return "windows do not grow in this mode"
    if latch.shut_because is not None:
        return f"growth is off for {latch.stable_to_go} more stable cycles, {latch.shut_because}"
    if now.cap_batches is not None:
        return f"the window cannot grow, it has all {now.cap_batches} batches of the event"
    if now.anchor >= settings.max_anchor:
        return f"the anchor is at its maximum of {settings.max_anchor} batches"
    if not now.feeds_growth:
        return "this window does not count for growth"
    return f"not enough to grow while warming up, the anchor stays at {now.anchor} batches"
