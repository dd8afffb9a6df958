"""Whether a cycle may be triggered: the rule, with its reason.

What it is: a pure function over the alive ranks. It opens when every alive rank has the
batches of its window (one in Sync, its count in Cadence), or has nothing left to do, or
is throttled, and somebody has a batch.
What it is not: the trigger. It moves nothing.
Who drives it: the coordinator after each event; the reason is logged and shown.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flodl_core.coordinator.cohort import RankRecord
from flodl_core.ids import Rank


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """Open or shut, and why.

    Attributes:
        blocker: an alive rank that has work and has not done its window; None if
            no rank can step, whatever the verdict is.
    """

    open: bool
    reason: str
    blocker: Rank | None = None


def _number(record: RankRecord) -> Rank:
    return record.rank


def review_gate(
    alive: Sequence[RankRecord],
    *,
    hold: str,
    is_quiesced: Callable[[Rank], bool],
    suspect: RankRecord | None = None,
) -> GateVerdict:
    """Decide whether the next cycle may be triggered.

    Args:
        alive: the ranks that take part, ascending.
        hold: why nothing may be triggered whatever the ranks did; empty if nothing holds.
        is_quiesced: whether a rank without a reported batch has nothing left to do.
        suspect: the rank that blocked last time; the search goes on from there, so that a
            window of many ranks asks each of them a few times, not once a report.
    """

    def blocks(record: RankRecord) -> bool:
        enough = record.ledger.open_batches >= record.planned_batches or record.throttled
        return not enough and not is_quiesced(record.rank)

    if not alive:
        return GateVerdict(open=False, reason="no rank is alive")
    start = bisect_left(alive, suspect.rank, key=_number) if suspect is not None else 0
    order = (alive[(start + step) % len(alive)] for step in range(len(alive)))
    blocker = next((record for record in order if blocks(record)), None)
    if blocker is not None:
        done, planned = blocker.ledger.open_batches, blocker.planned_batches
        reason = f"{blocker.where} has done {done} of {planned} batches of its window"
        return GateVerdict(open=False, reason=reason, blocker=blocker.rank)
    if hold:
        return GateVerdict(open=False, reason=hold)
    if not any(record.ledger.open_batches for record in alive):
        return GateVerdict(open=False, reason="no rank has done a batch and none has one to do")
    return GateVerdict(open=True, reason=f"all {len(alive)} ranks did their window")
