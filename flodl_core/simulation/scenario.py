"""What a seed means: a world, its work, its ceilings, its operators and its faults.

What it is: frozen records, drawn from the seed alone, each number from its own
generator, so that a new draw shifts no other.
What it is not: behaviour.
Who drives it: `simulation.world`; tests build scenarios by hand too.
"""

import random
from dataclasses import dataclass, field
from enum import StrEnum

from flodl_core.coordinator.events import StopKind
from flodl_core.dispatch.seeds import derive_seed
from flodl_core.ids import ExitCode
from flodl_core.simulation.lanes import Delays
from flodl_core.units import Seconds

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
    """What an operator does: stop the run, or ask for a save (kind None)."""

    at_s: Seconds
    kind: StopKind | None
    exit_code: int = ExitCode.STOPPED_SAVED


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
    param_buckets: int = 2
    buffer_buckets: int = 1
    """0: no floating-point buffers."""
    batch_s: tuple[Seconds, ...] = ()
    """Time of a batch of each rank; 50 ms where none is given."""
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

    @property
    def world_size(self) -> int:
        """Ranks of the world."""
        return sum(self.hosts)

    @property
    def absent_s(self) -> Seconds:
        """How long the launcher is away in all."""
        return sum(for_s for _, for_s in self.absences)

    @property
    def calm(self) -> bool:
        """Whether nothing goes wrong and nobody interferes."""
        saves = self.failing_saves or self.hanging_save is not None
        return not (self.faults or self.orders or self.absences or saves)

    def rng(self, purpose: str, *numbers: int) -> random.Random:
        """A generator for one purpose."""
        return random.Random(derive_seed(self.seed, purpose, *numbers))  # noqa: S311 no secret


_RANK_SITES = tuple(site for site in Site if site is not Site.SHIP_BUCKET)
_NTHS = (1, 1, 1, 2, 3, 5)
_SITE_ACTIONS = (
    (Action.CRASH, 8),
    (Action.FREEZE, 3),
    (Action.STICK, 2),
    (Action.RAISE, 2),
    (Action.KILL_HOST, 2),
    (Action.CUT_LINK, 2),
    (Action.PARTITION, 1),
)


@dataclass(slots=True)
class _Draw:
    """Draws by name, each from a generator of its own."""

    seed: int
    values: dict[str, random.Random] = field(default_factory=dict)

    def __call__(self, name: str) -> random.Random:
        fresh = random.Random(derive_seed(self.seed, f"draw {name}"))  # noqa: S311 no secret
        return self.values.setdefault(name, fresh)


def draw_scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    draw = _Draw(seed)
    hosts = tuple(draw("hosts").randint(1, 3) for _ in range(draw("host count").randint(1, 3)))
    world = sum(hosts)
    local = draw("local").random() < 0.8 or world == 1
    nasty = draw("nasty").random() < 0.3
    batch_size = draw("batch size").randint(1, 4)
    batches = draw("batches").randint(1, 8 * world)
    splits = draw("splits").choice((1, 1, 1, 2, 3))
    faults = _draw_faults(draw, hosts, local=local)
    return Scenario(
        seed=seed,
        hosts=hosts,
        local=local,
        n_samples=batches * batch_size + draw("tail").randrange(batch_size),
        batch_size=batch_size,
        epochs=draw("epochs").choice((1, 1, 2, 3)),
        epoch_splits=min(splits, batches),
        gamma=draw("gamma").choice((1.0, 1.0, 0.0, -1.0, 0.5)),
        has_eval=draw("eval").random() < 0.5,
        param_buckets=draw("param buckets").randint(1, 3),
        buffer_buckets=draw("buffer buckets").choice((0, 1, 2)),
        batch_s=tuple(draw("speeds").choice((0.02, 0.1, 0.5, 1.5)) for _ in range(world)),
        skip_share=draw("skips").choice((0.0, 0.0, 0.0, 0.2)),
        link_delays=Delays(0.02, 2.0, 0.05) if nasty else BETWEEN_HOSTS,
        local_delays=Delays(0.01, 0.5, 0.05) if nasty else IN_A_HOST,
        absences=_draw_absences(draw),
        heartbeat_timeout_s=draw("heartbeat").choice((6.0, 10.0, 20.0)),
        progress_timeout_s=draw("progress").choice((30.0, 60.0)),
        stall_timeout_s=draw("stall").choice((40.0, 60.0, 90.0)),
        stop_grace_s=draw("grace").choice((0.5, 3.0, 10.0)),
        checkpoint_every_s=draw("checkpoints").choice((None, 1.0, 5.0)),
        save_s=draw("save").choice((0.0, 0.2, 3.0)),
        failing_saves=(0, 1) if draw("failing saves").random() < 0.1 else (),
        hanging_save=draw("which save").randint(0, 2) if draw("hang").random() < 0.04 else None,
        max_failure=draw("max failure").choice((None, None, None, None, 1, 2)),
        wire=seed % 7 == 0,
        faults=faults,
        orders=_draw_orders(draw),
    )


def _draw_absences(draw: _Draw) -> tuple[tuple[Seconds, Seconds], ...]:
    rng = draw("absences")
    if rng.random() > 0.1:
        return ()
    return ((rng.uniform(0.5, 8.0), rng.choice((2.0, 5.5, 15.0, 40.0))),)


def _draw_orders(draw: _Draw) -> tuple[Order, ...]:
    rng = draw("orders")
    orders = []
    if rng.random() < 0.25:
        orders.append(Order(at_s=rng.uniform(0.0, 8.0), kind=None))
    if rng.random() < 0.25:
        at_s = rng.uniform(0.0, 10.0)
        code = rng.choice((ExitCode.STOPPED_SAVED, ExitCode.INTERRUPTED_SAVED))
        orders.append(Order(at_s=at_s, kind=StopKind.SAVE, exit_code=code))
        if rng.random() < 0.3:
            later = at_s + rng.uniform(0.0, 4.0)
            kind = rng.choice((StopKind.NOW, StopKind.SAVE))
            orders.append(Order(at_s=later, kind=kind, exit_code=code))
    return tuple(orders)


def _draw_faults(draw: _Draw, hosts: tuple[int, ...], *, local: bool) -> tuple[Fault, ...]:
    rng = draw("faults")
    world = sum(hosts)
    if rng.random() < 0.03:
        nth = rng.randint(1, 4)
        poison = Action.POISON
        return tuple(Fault(poison, rank, Site.BEFORE_READY, nth) for rank in range(world))
    if rng.random() < 0.04:
        site = rng.choice((Site.AFTER_MARKS, Site.CONTROL_ENDED, Site.PARAMS_ENDED))
        nth = rng.randint(1, 4)
        return tuple(Fault(Action.CRASH, rank, site, nth) for rank in range(world))
    count = rng.choice((0, 0, 1, 1, 1, 2, 2, 3, 5))
    return tuple(_draw_fault(rng, world, hosts, local=local) for _ in range(count))


def _draw_fault(rng: random.Random, world: int, hosts: tuple[int, ...], *, local: bool) -> Fault:
    rank = rng.randrange(world)
    on_local = local and rank < hosts[0]
    kind = rng.random()
    if kind < 0.15:
        forever = rng.random() < 0.5
        site = rng.choice((Site.IN_BATCH, Site.AFTER_REPORT, Site.BEFORE_READY))
        nth = rng.randint(1, 6)
        return Fault(Action.POISON, rank, site, nth, snapshots=0 if forever else rng.randint(1, 3))
    if kind < 0.2:
        return Fault(Action.BUSY, rank, Site.IN_BATCH, rng.randint(1, 4))
    names, weights = zip(*_SITE_ACTIONS, strict=True)
    action = rng.choices(names, weights)[0]
    if on_local and action in (Action.KILL_HOST, Action.CUT_LINK, Action.PARTITION):
        action = Action.CRASH
    if kind < 0.35 and not on_local:
        action = rng.choice((Action.KILL_HOST, Action.CUT_LINK, Action.PARTITION))
        return Fault(action, rank, Site.SHIP_BUCKET, rng.randint(1, 25))
    if kind < 0.6:
        return Fault(action, rank, at_s=rng.uniform(0.0, 10.0))
    return Fault(action, rank, rng.choice(_RANK_SITES), rng.choice(_NTHS))
