"""Who is who: the names of ranks, hosts, runs, cycles and sessions."""

from enum import StrEnum
from typing import NewType

Rank = NewType("Rank", int)
"""A training process of the world, 0 … world_size - 1, in admission order."""

HostName = NewType("HostName", str)
"""A label of one machine's ranks; never an address."""

RunId = NewType("RunId", str)
"""Sixteen hex characters, drawn once a run; a part of paths."""

Cycle = NewType("Cycle", int)
"""One averaging, trigger to finish. 0 is the initial broadcast."""

Session = NewType("Session", int)
"""One NCCL communicator's lifetime."""


class Mode(StrEnum):
    """The five ways to train: an apply policy times an average backend."""

    NCCL_SYNC = "nccl_sync"
    NCCL_CADENCE = "nccl_cadence"
    CPU_SYNC = "cpu_sync"
    CPU_CADENCE = "cpu_cadence"
    CPU_ASYNC = "cpu_async"

    @property
    def uses_nccl(self) -> bool:
        """Whether ranks average among themselves, from GPU to GPU."""
        return self in (Mode.NCCL_SYNC, Mode.NCCL_CADENCE)

    @property
    def has_counts(self) -> bool:
        """Whether each rank does a number of batches of its own between two averages."""
        return self in (Mode.NCCL_CADENCE, Mode.CPU_CADENCE, Mode.CPU_ASYNC)


class WireDtype(StrEnum):
    """What parameters travel as between hosts."""

    F32 = "f32"
    BF16 = "bf16"
    """Differences from the last committed consensus, rounded to bf16."""


class NcclScratch(StrEnum):
    """What a rank on NCCL keeps beside its parameters."""

    FULL = "full"
    """The last consensus: a death inside a collective costs nothing."""
    NONE = "none"
    """Nothing: averages overwrite the parameters while they run."""


class GuardKind(StrEnum):
    """Who judges whether windows may grow."""

    LEVEL = "level"
    """By the level of the ranks' divergence."""
    GROWTH = "growth"
    """By how fast the divergence grows with the batches."""
    NONE = "none"


class OuterKind(StrEnum):
    """What the cohort makes of an average before everybody adopts it."""

    AVG = "avg"
    """Nothing: the average itself."""
    SLOWMO = "slowmo"
    """Momentum over averages."""
    NESTEROV = "nesterov"
    """Nesterov's momentum over averages, as in DiLoCo."""


class InnerState(StrEnum):
    """What becomes of the ranks' own optimizers when a stepped average is adopted."""

    KEPT = "kept"
    """They go on with their state."""
    FRESH = "fresh"
    """They begin anew."""


class CallbackPolicy(StrEnum):
    """Who runs the callbacks of an epoch, such as its evaluation."""

    FASTEST = "fastest"
    """The rank with the fastest batches, chosen anew each time."""
    STICKY = "sticky"
    """The rank that was fastest at the first choice, as long as it is there."""
    FIXED = "fixed"
    """A given rank, as long as it is there."""


class StartMode(StrEnum):
    """Who closes the join window."""

    AUTO = "auto"
    MANUAL = "manual"
    HYBRID = "hybrid"


class ClusterPhase(StrEnum):
    """Where a run stands."""

    WAITING = "waiting"
    STAGING = "staging"
    FORMING = "forming"
    TRAINING = "training"
    DONE = "done"
    FAILED = "failed"


class Round(StrEnum):
    """One reduce of one kind."""

    CONTROL = "control"
    PARAMS = "params"
    BUFFERS = "buffers"


class RoundOutcome(StrEnum):
    """How a round ended for everybody."""

    COMMITTED = "committed"
    UNREALIZED = "unrealized"
    FAILED = "failed"


class SyncOutcome(StrEnum):
    """How a cycle ended for one rank."""

    COMMITTED = "committed"
    UNREALIZED = "unrealized"
    DECLINED = "declined"
    """The rank declared its own values non-finite and adopted the consensus."""


class SaveReason(StrEnum):
    """Why a checkpoint was written."""

    GRACEFUL_SHUTDOWN = "graceful_shutdown"
    MAX_FAILURE_EXCEEDED = "max_failure_exceeded"
    SINGLE_SURVIVOR = "single_survivor"
    ALL_RANKS_LOST = "all_ranks_lost"
    REDUCE_STALL = "reduce_stall"
    CHECKPOINT = "checkpoint"
    NON_FINITE = "non_finite"
    CONTROLLER_LOST = "controller_lost"


class RankPhase(StrEnum):
    """What a rank is doing, in the words of the console."""

    SPAWNING = "spawning"
    JOINING = "joining"
    WAITING = "waiting"
    TRAINING = "training"
    DATA = "data"
    """Waiting for the samples of its next batch."""
    HELD = "held"
    SNAPSHOT = "snapshot"
    REDUCING = "reducing"
    ADOPTING = "adopting"
    CALLBACK = "callback"
    SAVING = "saving"
    BUSY = "busy"
    STOPPED = "stopped"
    LOST = "lost"
    DONE = "done"


class ExitCode:
    """The exit codes of the `flodl` command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    WINDOW_FAILED = 3
    STOPPED_SAVED = 4
    NOT_SAVED = 5
    JOIN_TRANSIENT = 6
    JOIN_RUN_LOST = 7
    INTERRUPTED_SAVED = 130
