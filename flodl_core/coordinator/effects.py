"""What shall be done, in the words of the coordinator.

What it is: the frozen effects that `Coordinator.handle` returns, all in the
imperative. They are performed in order; none of them waits for a peer.
What it is not: an action; the launcher performs them.
Who drives it: the coordinator's parts append them, the launcher carries them out.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from flodl_core.coordinator.facts import SaveFacts
from flodl_core.dispatch.ranges import Range
from flodl_core.ids import Cycle, HostName, Rank, SaveReason
from flodl_core.machines import Note, NoteValue
from flodl_core.messages.job import RankFileRef
from flodl_core.messages.timing import TensorBlob
from flodl_core.units import Milliseconds, Seconds

LINGER_S: Seconds = 2.0
"""How long the process of a rank that left, or was declared dead, may take to end by itself."""


class SampleStatus(StrEnum):
    """What became of samples."""

    TRAINED = "trained"
    DROPPED = "dropped"


class Severity(StrEnum):
    """How loud an alert is."""

    WARN = "warn"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Send:
    """Send a rendezvous or control message to one rank."""

    rank: Rank
    message: object


@dataclass(frozen=True, slots=True)
class DeclareRankDead:
    """Tell root and relay to stop waiting for that rank, and end its process if it runs.

    Attributes:
        grace_s: how long the process may take to end by itself.
    """

    rank: Rank
    reason: str
    grace_s: Seconds = LINGER_S


@dataclass(frozen=True, slots=True)
class DismissHost:
    """Tell that host that its part is over; its ranks have been told to leave."""

    host: HostName
    reason: str


@dataclass(frozen=True, slots=True)
class DropHost:
    """Close the links of that worker host and make the root go on without it.

    All its ranks are gone, yet its link has not ended by itself: it hangs.
    """

    host: HostName
    reason: str


@dataclass(frozen=True, slots=True)
class EvictRank:
    """Tell that rank's host to end it: kindly first, then by force."""

    rank: Rank
    reason: str


@dataclass(frozen=True, slots=True)
class DumpRankStack:
    """Have that rank's host ask it where it is: something has waited for it too long."""

    rank: Rank


@dataclass(frozen=True, slots=True)
class SampleEntry:
    """Samples of one rank in one cycle that are accounted for, once and for all.

    Attributes:
        epoch: event number; `pass_index` says which pass the ranges are positions of.
        reason: why they were dropped, empty if trained.
        ranges: positions in the pass's permutation, in the order of training.
    """

    pass_index: int
    epoch: int
    cycle: Cycle
    rank: Rank
    status: SampleStatus
    reason: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class RecordSamples:
    """Append these to the sample log."""

    entries: tuple[SampleEntry, ...]


@dataclass(frozen=True, slots=True)
class RecordWindow:
    """Keep this in the run's history: a cycle after the initial one has ended.

    Attributes:
        outcome: committed, unrealized or failed.
        window_ms: from the end of the cycle before to the end of this one.
        reason: why the counts are what they are.
        batch_counts: by rank, of the next window; 0 for a rank that is gone.
        ms_per_batch, weights, divergences: by rank; None where it is not known.
    """

    cycle: Cycle
    version: int
    outcome: str
    epoch: int
    global_step: int
    samples_done: int
    samples_total: int
    loss: float | None
    throughput: float | None
    ideal_throughput: float | None
    window_ms: Milliseconds | None
    sync_ms: Milliseconds | None
    overhead: float | None
    anchor: int
    anchor_rank: Rank | None
    elche_phase: str
    verdict: str | None
    reason: str
    batch_counts: tuple[int, ...]
    ms_per_batch: tuple[Milliseconds | None, ...]
    weights: tuple[float | None, ...]
    divergences: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class SaveBundle:
    """Pin the root's committed values of that version now, write them, answer SaveFinished."""

    version: int
    reason: SaveReason
    facts: SaveFacts
    local_buffers: dict[str, TensorBlob]
    rank_files: tuple[RankFileRef, ...] = ()
    """What ranks have written of their own, by rank; a rank without one is left out."""
    held_as: int | None = None
    """On NCCL: the root's cycle that brought the values of that version; -1 if none did."""


@dataclass(frozen=True, slots=True)
class RaiseAlert:
    """Tell the operator.

    Attributes:
        alert_class: rank_lost, nonfinite, save_failed, …; repeats of one collapse.
        rank: whom it is about, if one rank.
    """

    severity: Severity
    alert_class: str
    rank: Rank | None
    detail: str


@dataclass(frozen=True, slots=True)
class Announce:
    """A fact for the log and the operator that is no alert, such as the tail of a pass."""

    topic: str
    text: str
    fields: dict[str, NoteValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run is over; end every process that is left and exit with this code.

    Attributes:
        reason: one word or two: finished, stopped, reduce_stall, …
        detail: one sentence, with the root cause of a failure.
    """

    exit_code: int
    reason: str
    detail: str


Effect: TypeAlias = (
    Send
    | DeclareRankDead
    | EvictRank
    | DumpRankStack
    | DropHost
    | DismissHost
    | RecordSamples
    | RecordWindow
    | SaveBundle
    | RaiseAlert
    | Announce
    | Note
    | RunFinished
)
