"""What goes into the balancer and what comes out of it.

What it is: three frozen records.
What it is not: a message; nothing here crosses the wire.
Who drives it: the coordinator fills in the first two, `elche.balancer` the third.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flodl_core.elche.record import ElchePhase
from flodl_core.elche.window_ledger import RankWindow
from flodl_core.ids import Rank
from flodl_core.units import Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReport:
    """What one finished cycle took.

    Attributes:
        rows: one an alive rank; rows of others are left out of the account.
        sync_ms: from the trigger to the last evidence of an alive rank.
        longest_boundary_wait_ms: the part of it in which a rank still finished a batch.
        feeds_growth: false for the final window of an event and for a window with a
            death, save or callback: its speeds count, its costs do not.
    """

    rows: Sequence[RankWindow]
    sync_ms: Milliseconds = 0.0
    longest_boundary_wait_ms: Milliseconds = 0.0
    feeds_growth: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StartValues:
    """What is assumed before anything is measured; the first report replaces it.

    Attributes:
        anchor_rank: the rank that looks slowest (`election.hardware_prior`).
        speeds: batches a second of ranks, on any common scale, above 0; the slowest gets
            the anchor, others in proportion, ranks without a number the anchor.
    """

    anchor_rank: Rank | None = None
    speeds: Mapping[Rank, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Where the cadence stands after a report, a verdict, a loss or a new cap.

    Attributes:
        counts: batches of the next window of each alive rank.
        anchor: batches of the anchor rank before any bound.
        overhead: averaging's part of the window, 0 to 1; None if not measured.
        proposed_anchor: a growth that waits for a verdict.
        measured: whether the last report said anything.
        counts_changed: whether this call changed a count.
        reason: one sentence, the same wherever it is shown.
    """

    counts: Mapping[Rank, int]
    anchor: int
    anchor_rank: Rank | None
    phase: ElchePhase
    overhead: float | None
    proposed_anchor: int | None
    measured: bool
    counts_changed: bool
    window_cap_binding: bool
    growth_enabled: bool
    reason: str
