"""The join window of a simulated run: hosts dial in, some twice, the real ledger decides.

What it is: seeded Hellos, hosts that vanish before the world forms and come again,
the envelope of the roster that the real MembershipLedger forms, and the numbers that
its scheduler gets.
What it is not: handshakes or refusals; those have tests of their own.
Who drives it: `simulation.world`, before anything else.
"""

from dataclasses import dataclass
from functools import partial

from flodl_core.config.window import WindowConfig
from flodl_core.coordinator.cadence import CadenceSettings
from flodl_core.coordinator.callback_desk import CallbackSettings
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.elche.settings import ElcheSettings
from flodl_core.ids import HostName, Rank, RunId, StartMode
from flodl_core.membership.events import (
    FormationFinished,
    FormWorld,
    HelloReceived,
    LedgerEvent,
    MemberLeft,
    StartRequested,
    WindowOpened,
)
from flodl_core.membership.ledger import MembershipLedger
from flodl_core.membership.roster import ConnectionId, Expected, SeatedMember, host_ranks
from flodl_core.messages.job import Envelope, HostRanks, JobRef, RunSpec
from flodl_core.messages.join import JoinHello
from flodl_core.simulation.scenario import Scenario
from flodl_core.simulation.tiny_model import tiny_geometry
from flodl_core.simulation.virtual_loop import VirtualLoop
from flodl_core.units import Seconds

DATASET_SIG = "d" * 64
RUN_ID = RunId("0123456789abcdef")
MAX_ANCHOR = 40
_WINDOW_S: Seconds = 60.0


@dataclass(slots=True)
class Formed:
    """A world, and the ledger that formed it."""

    envelope: Envelope
    ledger: MembershipLedger | None
    """None if one rank trains solo, without a window."""
    connections: dict[HostName, ConnectionId]


class _Window:
    """The hosts of a scenario, dialling in."""

    def __init__(self, scenario: Scenario, loop: VirtualLoop) -> None:
        self._scenario, self._loop = scenario, loop
        self._rng = scenario.rng("formation")
        mode = self._rng.choice(tuple(StartMode))
        manual = mode is StartMode.MANUAL
        self.ledger = MembershipLedger(
            WindowConfig(
                min_rank_start=2,
                target_ranks=None if manual else scenario.world_size,
                join_timeout_s=_WINDOW_S,
                max_join_timeout_s=_WINDOW_S * 2,
                start_mode=mode,
            ),
            Expected(run_id=RUN_ID, mode=scenario.mode, n_samples=scenario.n_samples),
        )
        self.connections: dict[HostName, ConnectionId] = {}
        self.roster: tuple[SeatedMember, ...] | None = None
        self._dialled = 0
        self._manual = manual

    def form(self) -> tuple[SeatedMember, ...]:
        """Drive the window until the world is formed."""
        self._tell(WindowOpened())
        count = len(self._scenario.hosts)
        for number in range(count):
            first = number == 0 and self._scenario.local
            delay = 0.0 if first else self._rng.uniform(0.1, 5.0)
            self._loop.after(delay, partial(self._dial, number, first=first))
        while self.roster is None:
            assert self._loop.step(), "the window stays open with every host in it"
        self._tell(FormationFinished())
        return self.roster

    def _dial(self, number: int, *, first: bool) -> None:
        self._dialled += 1
        connection = ConnectionId(self._dialled)
        host = HostName(f"host{number}")
        ranks = self._scenario.hosts[number]
        hello = JoinHello(
            host=host,
            local_devices=tuple(f"cpu:{index}" for index in range(ranks)),
            gpus=(),
            torch_variant="",
            n_samples=self._scenario.n_samples,
            dataset_sig=DATASET_SIG,
            run_id=RUN_ID,
        )
        self.connections[host] = connection
        self._tell(HelloReceived(connection=connection, hello=hello, address="10.0.0.1"))
        if self.roster is None and not first and self._rng.random() < 0.15:
            self._tell(MemberLeft(connection=connection))
            self._loop.after(self._rng.uniform(0.1, 2.0), partial(self._dial, number, first=first))
        elif self._manual and len(self.ledger.members) == len(self._scenario.hosts):
            self._tell(StartRequested())

    def _tell(self, event: LedgerEvent) -> None:
        for effect in self.ledger.handle(event, self._loop.now):
            if isinstance(effect, FormWorld):
                self.roster = effect.roster
        self.ledger.check()


def form_world(scenario: Scenario, loop: VirtualLoop) -> Formed:
    """Let the hosts of a scenario join, and return the world that they form."""
    if scenario.world_size == 1:
        alone = HostRanks(host=HostName("host0"), ranks=(Rank(0),), devices=("cpu:0",))
        return Formed(_envelope(scenario, (alone,)), None, {})
    window = _Window(scenario, loop)
    roster = window.form()
    envelope = _envelope(scenario, host_ranks(roster))
    return Formed(envelope, window.ledger, window.connections)


def coordinator_settings(scenario: Scenario) -> CoordinatorSettings:
    """Return the scheduler's numbers of a scenario."""
    return CoordinatorSettings(
        stop_grace_s=scenario.stop_grace_s,
        checkpoint_every_s=scenario.checkpoint_every_s,
        first_batch_timeout_s=scenario.first_batch_timeout_s,
        leave_timeout_s=scenario.leave_timeout_s,
        host_drain_s=scenario.host_drain_s,
        max_failure=scenario.max_failure,
        cadence=CadenceSettings(
            elche=ElcheSettings(
                initial_anchor=scenario.anchor,
                max_anchor=MAX_ANCHOR,
                max_batch_diff=scenario.max_batch_diff,
                pinned_counts=scenario.pinned_counts,
                relax_up=scenario.relax_up,
            ),
            guard=scenario.guard,
            meta=scenario.meta,
            overshoot=scenario.overshoot,
        ),
        callbacks=CallbackSettings(
            policy=scenario.callback_policy,
            fixed_rank=Rank(scenario.seed % scenario.world_size),
            eval_every=scenario.eval_every,
        ),
        partition_ratios=scenario.partition_ratios,
    )


def _envelope(scenario: Scenario, hosts: tuple[HostRanks, ...]) -> Envelope:
    spec = RunSpec(
        run_id=RUN_ID,
        mode=scenario.mode,
        job=JobRef(kind="recipe", name="tiny", args={}),
        n_samples=scenario.n_samples,
        batch_size=scenario.batch_size,
        epochs=scenario.epochs,
        epoch_splits=scenario.epoch_splits,
        seed=scenario.seed,
        gamma=scenario.gamma,
        wire_dtype="f32",
        heartbeat_interval_s=1.0,
        heartbeat_timeout_s=scenario.heartbeat_timeout_s,
        progress_timeout_s=scenario.progress_timeout_s,
        stall_timeout_s=scenario.stall_timeout_s,
        rendezvous_timeout_s=scenario.rendezvous_timeout_s,
        save_path="tiny",
        outer=scenario.outer,
        easgd_alpha=scenario.easgd_alpha,
    )
    return Envelope(
        spec=spec,
        world_size=scenario.world_size,
        hosts=hosts,
        geometry=tiny_geometry(scenario.param_buckets, scenario.buffer_buckets),
        model_sig="m" * 64,
        layout_sig="l" * 64,
        dataset_sig=DATASET_SIG,
        same_layout=True,
        controller="127.0.0.1:1337",
    )
