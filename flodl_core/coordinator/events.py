"""What happened, in the words of the coordinator.

What it is: the frozen events that `Coordinator.handle` takes, all in the past
tense. Order matters in one place: the root posts `RoundEnded` before it tells
any rank, so that a round's end is known here before any acknowledgement of it.
What it is not: a wire; a rank's messages arrive inside `RankMessage`.
Who drives it: the launcher posts them from its links, its root thread, its
children and its operators.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from flodl_core.ids import Cycle, HostName, Rank, Round, RoundOutcome
from flodl_core.machines import Tick
from flodl_core.messages.data import RankTally
from flodl_core.messages.join import HostStats


class StopKind(StrEnum):
    """How an operator, or a signal, ends the run."""

    SAVE = "save"
    """End the window, save, leave."""
    NOW = "now"
    """Leave at once; nothing more is written."""


@dataclass(frozen=True, slots=True)
class RankMessage:
    """A rendezvous, timing or metrics message of that rank arrived."""

    rank: Rank
    message: object


@dataclass(frozen=True, slots=True)
class RankLost:
    """That rank's process or link ended; `cause` is one clause for the operator."""

    rank: Rank
    cause: str


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """The root ended a round; nobody has been told yet.

    Attributes:
        ranks_accepted: whose contributions are in the sum.
        mass: the divisor; Σ gamma mass for control and params rounds.
        tallies: what the control round said of each rank, in every round's event.
        unstepped_buckets: how many took the plain average, since the outer step of it was not
            finite.
    """

    cycle: Cycle
    round: Round
    outcome: RoundOutcome
    ranks_accepted: tuple[Rank, ...]
    mass: float
    tallies: tuple[RankTally, ...] = ()
    unstepped_buckets: int = 0


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The run shall end early with this exit code; `who` is a signal or an operator."""

    kind: StopKind
    exit_code: int
    who: str


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """A save shall be made soon: at the next commit, for which a long window is cut."""

    who: str


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The ranks of that host shall bring what they have done, hand back the rest, and leave."""

    host: HostName
    who: str


@dataclass(frozen=True, slots=True)
class EvictRequested:
    """That rank shall be ended and the others go on without it."""

    rank: Rank
    who: str


@dataclass(frozen=True, slots=True)
class SaveFinished:
    """The bundle of that version is complete on disk, or `error` says why it is not."""

    version: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class HostStatsReported:
    """What the operating system says of a rank's process; each second."""

    stats: HostStats


Event: TypeAlias = (
    RankMessage
    | RankLost
    | RoundEnded
    | StopRequested
    | CheckpointRequested
    | DrainRequested
    | EvictRequested
    | SaveFinished
    | HostStatsReported
    | Tick
)
