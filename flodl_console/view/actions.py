"""What an operator may do now, why not, and what follows.

What it is: the same rules as the run's own, so that a key is enabled only where the run
would accept it; and what a confirm box says.
What it is not: the run's answer; the run decides.
Who drives it: the app's action registry, the confirm box.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ActionId(StrEnum):
    """What can be asked of a run."""

    START = "start"
    STOP_SAVE = "stop_save"
    STOP_NOW = "stop_now"
    CHECKPOINT = "checkpoint"
    DRAIN = "drain"
    EVICT = "evict"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmBasis:
    """What a confirm box was opened upon; it closes itself when this changes."""

    run_id: str
    phase: str
    members: tuple[tuple[str, tuple[int, ...]], ...]
    """Hosts with their ranks."""
    alive_ranks: tuple[int, ...]
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmText:
    """What a confirm box says."""

    title: str
    """A question, at most 60 cells."""
    lines: tuple[str, ...]
    """Consequences in numbers, each at most 66 cells, at most 5."""
    yes: str
    """What the button that does it says, at most 24 cells."""
    no: str
    typed_name: str
    """What must be typed before it is done; empty where a key suffices."""
    basis: ConfirmBasis


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOffer:
    """One action as it stands now."""

    action: ActionId
    is_enabled: bool
    reason: str
    """Why not, at most 76 cells; empty if it is enabled."""
    what_follows: str
    """What it does, at most 76 cells."""
    confirm: ConfirmText | None
    """None where it is not enabled, or needs no confirmation."""
    request: str
    """The word for `Feed.ask`."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The named parameters for `Feed.ask`."""
