"""How many batches a rank that runs on may hold from one snapshot to the next.

What it is: one pure rule. A rank gets its count and an overshoot, so that it need not
stop when the others have not done theirs. The overshoot is told in batches of the fastest
rank and takes about as long on every other, but at least one batch: what a slow rank holds
nobody else can take. The last batches of an event are shared out so
that all end together; in the window before them a rank runs on into its part of them only,
and the slowest, for which the others wait, not at all: a batch of theirs takes long.
What it is not: a pool; what a rank holds already is for the caller to subtract.
Who drives it: `coordinator.cadence`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flodl_core.dispatch.final_window import apportion, is_final_window
from flodl_core.errors import LocalProtocolError


@dataclass(frozen=True, slots=True)
class RunAhead:
    """What each rank may hold, by rank of the world; 0 for who is gone.

    Attributes:
        batches: all of them.
        planned: of these, the ones that the next average waits for.
        is_final: whether they are all that is left of the event.
    """

    batches: tuple[int, ...]
    planned: tuple[int, ...]
    is_final: bool


def run_ahead(left_batches: int, counts: Sequence[int], overshoot: int) -> RunAhead:
    """Return what each rank may hold, of what no average has yet.

    Args:
        left_batches: whole batches of the event that no snapshot holds, held by ranks or not.
        counts: batches from one average to the next, by rank of the world; 0 for who is gone.
        overshoot: batches beyond its count that the fastest rank may do, 0 or more.

    Returns:
        Together at most `left_batches`, and just as many where the event ends.

    Raises:
        LocalProtocolError: a number is negative, or no count is above 0.
    """
    if overshoot < 0:
        raise LocalProtocolError(f"an overshoot of {overshoot} batches; expected 0 or more")
    if left_batches <= 0 or is_final_window(left_batches, counts):
        shares = apportion(left_batches, counts)
        return RunAhead(shares, shares, is_final=True)
    alive = [count for count in counts if count]
    if not alive or min(counts) < 0:
        raise LocalProtocolError(f"counts {tuple(counts)}; expected 0 or more, and one above 0")
    rest = left_batches - sum(counts)
    if rest == 0 or is_final_window(rest, counts):
        parts = zip(apportion(rest, counts), counts, strict=True)
        most = tuple(part if count > min(alive) else 0 for part, count in parts)
    else:
        most = tuple(rest // len(alive) if count else 0 for count in counts)
    further = (-(-overshoot * count // max(counts)) for count in counts)
    batches = (
        count + min(own, part) for count, own, part in zip(counts, further, most, strict=True)
    )
    return RunAhead(tuple(batches), tuple(counts), is_final=False)
