"""What always holds of a ledger, as a list of sentences.

What it is: a check of state against itself, for tests and for `--check`.
What it is not: part of any decision.
Who drives it: `MembershipLedger.check`.
"""

from collections.abc import Sequence

from flodl_core.config.window import WindowConfig
from flodl_core.ids import ClusterPhase, StartMode
from flodl_core.membership.roster import Member, count_ranks, seat
from flodl_core.units import Seconds


def broken_invariants(
    phase: ClusterPhase,
    members: Sequence[Member],
    config: WindowConfig,
    *,
    due: Seconds | None,
    start_armed: bool,
) -> list[str]:
    """Return the sentences that do not hold.

    Args:
        phase: of the ledger.
        members: of the ledger, in admission order.
        config: the window's numbers.
        due: its deadline.
        start_armed: whether a start was taken.
    """
    is_open = phase in (ClusterPhase.WAITING, ClusterPhase.STAGING)
    ranks = [rank for seated in seat(members) for rank in seated.ranks]
    joined = count_ranks(member for member in members if member.connected)
    holds = config.start_mode is not StartMode.AUTO and joined >= config.min_rank_start
    target = config.target_ranks
    closes_at_target = target is not None and config.start_mode is not StartMode.MANUAL
    sentences = {
        "ranks are contiguous": ranks == list(range(len(ranks))),
        "hosts differ": len({member.host for member in members}) == len(members),
        "connections differ": len({member.connection for member in members}) == len(members),
        "only a final world keeps lost members": not is_open or all(m.connected for m in members),
        "staging is quorum held": not is_open or holds == (phase is ClusterPhase.STAGING),
        "a start closes the window": not (is_open and start_armed),
        "a target closes the window": not (is_open and closes_at_target) or joined < (target or 0),
        "a closed window is not timed": is_open or due is None,
    }
    return [sentence for sentence, is_true in sentences.items() if not is_true]
