"""What a seed means: the scenario that is drawn from it.

What it is: draws from the seed alone, each number from its own generator, so that a
new draw shifts no other.
What it is not: a record of a scenario, nor its behaviour.
Who drives it: `simulation.simulate`.
"""

import random
from dataclasses import dataclass, field

from flodl_core.coordinator.events import StopKind
from flodl_core.dispatch.seeds import derive_seed
from flodl_core.ids import CallbackPolicy, ExitCode, GuardKind, Mode, OuterKind
from flodl_core.messages.job import OuterSpec
from flodl_core.simulation.lanes import Delays
from flodl_core.simulation.scenario import (
    BETWEEN_HOSTS,
    IN_A_HOST,
    Action,
    Fault,
    Order,
    Scenario,
    Site,
    SpeedChange,
)
from flodl_core.units import Seconds

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


def draw_scenario(seed: int, mode: Mode = Mode.CPU_SYNC) -> Scenario:
    """The scenario of a seed in a mode; what several modes know is the same in each."""
    draw = _Draw(seed)
    hosts = tuple(draw("hosts").randint(1, 3) for _ in range(draw("host count").randint(1, 3)))
    world = sum(hosts)
    local = draw("local").random() < 0.8 or world == 1
    nasty = draw("nasty").random() < 0.3
    batch_size = draw("batch size").randint(1, 4)
    batches = draw("batches").randint(1, 8 * world)
    paced, runs_on = mode.has_counts, mode is Mode.CPU_ASYNC
    batches *= draw("length").choice((1, 2, 4)) if paced else 1
    splits = draw("splits").choice((1, 1, 1, 2, 3))
    faults = _draw_faults(draw, hosts, local=local)
    pins = draw("pins")
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
        eval_every=draw("eval every").choice((1, 1, 1, 2, 0)),
        callback_policy=draw("callbacks").choice(tuple(CallbackPolicy)),
        partition_ratios=() if paced else _draw_ratios(draw, world),
        param_buckets=draw("param buckets").randint(1, 3),
        buffer_buckets=draw("buffer buckets").choice((0, 1, 2)),
        batch_s=tuple(draw("speeds").choice((0.02, 0.1, 0.5, 1.5)) for _ in range(world)),
        speed_changes=_draw_speed_changes(draw, world) if paced else (),
        mode=mode,
        anchor=draw("anchor").choice((1, 2, 4, 6)),
        max_batch_diff=draw("batch diff").choice((None, None, 0, 2, 5)) if paced else None,
        pinned_counts=tuple(pins.randint(1, 6) for _ in range(world))
        if paced and pins.random() < 0.15
        else None,
        guard=draw("guard").choice(tuple(GuardKind)),
        meta=draw("meta").random() < 0.7,
        relax_up=draw("relax").random() < 0.3,
        overshoot=draw("overshoot").choice((None, None, 0, 1, 6)) if runs_on else None,
        outer=_draw_outer(draw),
        easgd_alpha=draw("alpha").choice((0.5, 0.5, 0.25, 1.0)) if runs_on else None,
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
        orders=_draw_orders(draw, hosts),
    )


def _draw_outer(draw: _Draw) -> OuterSpec | None:
    rng = draw("outer")
    if rng.random() < 0.5:
        return None
    return OuterSpec(
        kind=rng.choice((OuterKind.SLOWMO, OuterKind.NESTEROV)),
        lr=rng.choice((0.5, 0.7, 1.0)),
        momentum=rng.choice((0.0, 0.5, 0.9)),
    )


def _draw_ratios(draw: _Draw, world: int) -> tuple[float, ...]:
    rng = draw("ratios")
    return tuple(rng.uniform(0.1, 3.0) for _ in range(world)) if rng.random() < 0.3 else ()


def _draw_absences(draw: _Draw) -> tuple[tuple[Seconds, Seconds], ...]:
    rng = draw("absences")
    if rng.random() > 0.1:
        return ()
    return ((rng.uniform(0.5, 8.0), rng.choice((2.0, 5.5, 15.0, 40.0))),)


def _draw_speed_changes(draw: _Draw, world: int) -> tuple[SpeedChange, ...]:
    rng = draw("speed changes")
    count = rng.choice((0, 0, 1, 1, 2, 4))
    changes = [
        SpeedChange(rng.randrange(world), rng.uniform(0.5, 8.0), rng.choice((0.2, 0.5, 3.0, 10.0)))
        for _ in range(count)
    ]
    return tuple(sorted(changes, key=lambda change: change.at_s))


def _draw_orders(draw: _Draw, hosts: tuple[int, ...]) -> tuple[Order, ...]:
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
    drains = draw("drains")
    while drains.random() < 0.2:
        host = drains.randrange(len(hosts))
        orders.append(Order(at_s=drains.uniform(0.5, 10.0), kind=None, drain=host))
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
