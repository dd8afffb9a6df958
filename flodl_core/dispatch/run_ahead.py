"""How many batches a rank that runs on may hold from one snapshot to the next.

What it is: one pure rule. A rank gets its count and an overshoot, so that it need not
stop when the others have not done theirs; where an event has too little left for that,
the overshoot shrinks first, and the last batches are shared out so that all end together.
What it is not: a pool; what a rank holds already is for the caller to subtract.
Who drives it: `coordinator.cadence`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flodl_core.dispatch.final_window import apportion, is_final_window
from flodl_core.errors import LocalProtocolError


@dataclass(frozen=True, slots=True)
class RunAhead:
    """What each rank may hold.

    Attributes:
        batches: by rank of the world; 0 for who is gone.
        is_final: whether these are all that is left of the event.
        further: of them, the overshoot of each rank that takes part.
    """

    batches: tuple[int, ...]
    is_final: bool
    further: int = 0


def run_ahead(left_batches: int, counts: Sequence[int], overshoot: int) -> RunAhead:
    """Return what each rank may hold, of what no average has yet.

    Args:
        left_batches: whole batches of the event that no snapshot holds, held by ranks or not.
        counts: batches from one average to the next, by rank of the world; 0 for who is gone.
        overshoot: batches beyond its count that a rank may do, 0 or more.

    Returns:
        Together at most `left_batches`, and just as many where the event ends.

    Raises:
        LocalProtocolError: a number is negative, or no count is above 0.
    """
    if overshoot < 0:
        raise LocalProtocolError(f"an overshoot of {overshoot} batches; expected 0 or more")
    if left_batches <= 0 or is_final_window(left_batches, counts):
        return RunAhead(apportion(left_batches, counts), is_final=True)
    alive = sum(1 for count in counts if count)
    if min(counts, default=0) < 0 or not alive:
        raise LocalProtocolError(f"counts {tuple(counts)}; expected 0 or more, and one above 0")
    further = min(overshoot, (left_batches - sum(counts)) // alive)
    return RunAhead(
        tuple(count + further if count else 0 for count in counts),
        is_final=False,
        further=further,
    )
