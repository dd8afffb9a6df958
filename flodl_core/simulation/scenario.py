"""What a run depends on: a world, its work, its ceilings, its operators and its faults.

What it is: frozen records.
What it is not: behaviour, and not chance; `simulation.draws` makes one of a seed.
Who drives it: `simulation.world`; tests build scenarios by hand too.
"""

import random
from dataclasses import dataclass
from enum import StrEnum

from flodl_core.coordinator.events import StopKind
from flodl_core.dispatch.seeds import derive_seed
from flodl_core.ids import CallbackPolicy, ExitCode, GuardKind, Mode
from flodl_core.messages.job import OuterSpec
from flodl_core.simulation.lanes import Delays
from flodl_core.simulation.saved_run import SavedRun
from flodl_core.simulation.tiny_model import PARAMS_A_BUCKET
from flodl_core.units import Seconds

SIMULATED = (Mode.CPU_SYNC, Mode.CPU_CADENCE, Mode.CPU_ASYNC)
"""Modes that a simulated run through the root can have."""

ON_NCCL = (Mode.NCCL_SYNC, Mode.NCCL_CADENCE)
"""Modes whose runs are drawn event by event (`nccl_world`), without hosts' faults or links."""

IN_A_HOST = Delays(0.0002, 0.002, 0.05)
BETWEEN_HOSTS = Delays(0.003, 0.05, 0.05)
LAUNCHER_LAG = Delays(0.0005, 0.02, 0.02)


class Site(StrEnum):
    """Where in a rank's or host's life a fault may strike."""

    HELLO = "hello"
    IN_BATCH = "in_batch"
    AFTER_REPORT = "after_report"
    BEFORE_READY = "before_ready"
    BETWEEN_MARKS = "between_marks"
    """After Ready, before SnapshotReady."""
    AFTER_MARKS = "after_marks"
    CONTROL_ENDED = "control_ended"
    PARAMS_ENDED = "params_ended"
    BEFORE_ACK = "before_ack"
    AFTER_ACK = "after_ack"
    BEFORE_METRICS = "before_metrics"
    IN_CHECKPOINT = "in_checkpoint"
    IN_EVAL = "in_eval"
    LEAVING = "leaving"
    SHIP_BUCKET = "ship_bucket"
    """The rank's host is about to send a bucket up."""


class Action(StrEnum):
    """What strikes."""

    CRASH = "crash"
    """The process is killed."""
    FREEZE = "freeze"
    """The process is stopped and never says another word."""
    STICK = "stick"
    """It answers, and gets no further."""
    RAISE = "raise"
    """The job raises: Exiting with an error, then the end."""
    BUSY = "busy"
    """It computes without answering for a while, then goes on."""
    KILL_HOST = "kill_host"
    CUT_LINK = "cut_link"
    PARTITION = "partition"
    """The host's network drops everything without an end."""
    POISON = "poison"
    """Its values become non-finite, for some snapshots or for good."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        at_s: when, if `site` is None.
        site: where in the life of `rank`, the `nth` time it comes there.
        snapshots: for POISON, how many snapshots are not finite; 0 is all of them.
    """

    action: Action
    rank: int
    site: Site | None = None
    nth: int = 1
    at_s: Seconds = 0.0
    snapshots: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """What an operator does: stop the run, drain a host, or else ask for a save.

    Attributes:
        kind: of a stop; None if it is none.
        drain: which host, counted from 0; None if none is drained.
    """

    at_s: Seconds
    kind: StopKind | None
    exit_code: int = ExitCode.STOPPED_SAVED
    drain: int | None = None


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """From `at_s` on a batch of the rank takes `factor` times as long as at the beginning."""

    rank: int
    at_s: Seconds
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that a run depends on."""

    seed: int
    hosts: tuple[int, ...] = (2,)
    """Ranks a host."""
    local: bool = True
    """Whether the first host is the launcher's own."""
    n_samples: int = 40
    batch_size: int = 2
    epochs: int = 1
    epoch_splits: int = 1
    gamma: float = 1.0
    has_eval: bool = False
    eval_every: int = 1
    callback_policy: CallbackPolicy = CallbackPolicy.FASTEST
    partition_ratios: tuple[float, ...] = ()
    param_buckets: int = 2
    buffer_buckets: int = 1
    """0: no floating-point buffers."""
    batch_s: tuple[Seconds, ...] = ()
    """Time of a batch of each rank; 50 ms where none is given."""
    speed_changes: tuple[SpeedChange, ...] = ()
    """In the order of time."""
    mode: Mode = Mode.CPU_SYNC
    anchor: int = 4
    """Batches of the slowest rank in the first windows of Cadence."""
    max_batch_diff: int | None = None
    pinned_counts: tuple[int, ...] | None = None
    guard: GuardKind = GuardKind.LEVEL
    meta: bool = True
    relax_up: bool = False
    overshoot: int | None = None
    """Batches that ranks of Async run on; as verdicts say if None."""
    outer: OuterSpec | None = None
    """What is made of an average; None adopts it as it is."""
    easgd_alpha: float | None = None
    """How far a rank moves towards a consensus; None overwrites. For Async only."""
    skip_share: float = 0.0
    """How often the optimizer step is not applied."""
    local_delays: Delays = IN_A_HOST
    link_delays: Delays = BETWEEN_HOSTS
    launcher_lag: Delays = LAUNCHER_LAG
    absences: tuple[tuple[Seconds, Seconds], ...] = ()
    """When the launcher's process is stopped, and for how long."""
    heartbeat_timeout_s: Seconds = 10.0
    progress_timeout_s: Seconds = 60.0
    first_batch_timeout_s: Seconds = 90.0
    stall_timeout_s: Seconds = 60.0
    rendezvous_timeout_s: Seconds = 30.0
    stop_grace_s: Seconds = 10.0
    leave_timeout_s: Seconds = 10.0
    host_drain_s: Seconds = 15.0
    max_failure: int | None = None
    checkpoint_every_s: Seconds | None = None
    save_s: Seconds = 0.2
    failing_saves: tuple[int, ...] = ()
    """Which writes fail, counted from 0."""
    hanging_save: int | None = None
    """Which write never ends."""
    wire: bool = False
    """Whether every message goes through the codec."""
    faults: tuple[Fault, ...] = ()
    orders: tuple[Order, ...] = ()
    saved: SavedRun | None = None
    """What the run goes on from; None if it begins."""

    @property
    def first_version(self) -> int:
        """The version of what the initial broadcast brings."""
        return self.saved.facts.sync_round if self.saved is not None else 0

    @property
    def params_numel(self) -> int:
        """Values of the parameter region."""
        return self.param_buckets * PARAMS_A_BUCKET

    @property
    def world_size(self) -> int:
        """Ranks of the world."""
        return sum(self.hosts)

    @property
    def absent_s(self) -> Seconds:
        """How long the launcher is away in all."""
        return sum(for_s for _, for_s in self.absences)

    @property
    def drained_hosts(self) -> frozenset[int]:
        """Hosts that somebody wants to drain."""
        return frozenset(order.drain for order in self.orders if order.drain is not None)

    @property
    def calm(self) -> bool:
        """Whether nothing goes wrong and nobody interferes."""
        saves = self.failing_saves or self.hanging_save is not None
        return not (self.faults or self.orders or self.absences or saves)

    def rng(self, purpose: str, *numbers: int) -> random.Random:
        """A generator for one purpose."""
        return random.Random(derive_seed(self.seed, purpose, *numbers))  # noqa: S311 no secret
