"""Whether the join window stays open: numbers in, a verdict with its reason out.

What it is: one pure rule, six tests in a fixed order.
What it is not: memory; who joined and when the window opened is the ledger's.
Who drives it: `MembershipLedger`, after every event.

     opened            join_timeout_s            max_join_timeout_s
        |------ open -------|---- grace: forms -----|-- failed
                            |     at quorum         |

In grace the first moment of quorum forms the world, except in manual mode,
where only the operator does.
"""

from dataclasses import dataclass
from enum import StrEnum

from flodl_core.config.window import WindowConfig
from flodl_core.ids import StartMode
from flodl_core.units import Seconds


class WindowState(StrEnum):
    """What a verdict says of the window."""

    OPEN = "open"
    FORMED = "formed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of the window and the sentence that says why."""

    state: WindowState
    reason: str


def review_window(
    joined_ranks: int, waited_s: Seconds, config: WindowConfig, *, start_requested: bool
) -> Verdict:
    """Return what becomes of the window.

    Args:
        joined_ranks: ranks of the members that are connected now.
        waited_s: since the window opened.
        config: the window's numbers.
        start_requested: whether the operator asked for the start.
    """
    manual = config.start_mode is StartMode.MANUAL
    has_quorum = joined_ranks >= config.min_rank_start
    if start_requested and config.start_mode is not StartMode.AUTO and has_quorum:
        return Verdict(WindowState.FORMED, "operator start")
    if config.target_ranks is not None and not manual and joined_ranks >= config.target_ranks:
        return Verdict(WindowState.FORMED, "target ranks reached")
    if waited_s < config.join_timeout_s:
        return Verdict(WindowState.OPEN, "join window open")
    if not manual and has_quorum:
        return Verdict(WindowState.FORMED, "join window closed with quorum")
    if waited_s < config.max_join_timeout_s:
        waits_for = "the operator's start" if manual and has_quorum else "quorum"
        return Verdict(WindowState.OPEN, f"past the window, waiting for {waits_for}")
    if manual and has_quorum:
        return Verdict(WindowState.FAILED, "operator start not received")
    return Verdict(WindowState.FAILED, quorum_not_met(joined_ranks, config.min_rank_start))


def quorum_not_met(joined_ranks: int, min_rank_start: int) -> str:
    """Return the words that window, start and status use for a missing quorum."""
    return f"quorum not met: {joined_ranks}/{min_rank_start}"
