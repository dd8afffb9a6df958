"""The oracle of ends: the innocent stay, the lost are noticed, every end has its cause.

What it is: who was struck by which fault and since when somebody is silent, compared
with whom the coordinator takes out, and with how and when the run ends.
What it is not: a watcher of samples or values.
Who drives it: `simulation.faults` and `simulation.world` tell, `oracles` asks.
"""

from dataclasses import dataclass, field

from flodl_core.coordinator.effects import (
    Announce,
    DeclareRankDead,
    EvictRank,
    RaiseAlert,
    RunFinished,
)
from flodl_core.ids import ExitCode, HostName, Rank, SaveReason
from flodl_core.simulation.rules import Rules
from flodl_core.simulation.scenario import Action
from flodl_core.units import Seconds

SLACK_S: Seconds = 5.0
"""News of an end, one beacon, and the launcher's lag."""

_ROUND_WAITS_S: Seconds = 10.0
"""What the last save may wait for a round that is under way at the root."""


@dataclass(slots=True)
class EndOracle:
    """Who must go, who must stay, and when it must be over."""

    rules: Rules
    struck: set[Rank] = field(default_factory=set)
    """Ranks that a fault has touched."""
    applied: set[Action] = field(default_factory=set)
    """What has struck so far."""
    stuck_outside_batches: bool = False
    """Whether a rank answers and gets no further where others may wait for it in vain."""
    silent_since: dict[Rank, tuple[Seconds, Seconds]] = field(default_factory=dict)
    """Ranks that can say nothing more: since when, and how long until they must be taken out."""
    taken_out: set[Rank] = field(default_factory=set)
    drains: dict[HostName, tuple[Rank, ...]] = field(default_factory=dict)
    """Hosts whose drain was accepted, with their ranks; some may be over already."""
    drained: set[HostName] = field(default_factory=set)
    """Hosts that were drained, or whose drain was called off."""
    stop_at: Seconds | None = None
    """The first request to stop."""
    finished: RunFinished | None = None
    saving_last: bool = False
    """Whether the save that ends the run has begun."""
    saved: bool = True
    """Whether the newest write that ended was good."""

    def rank_taken_out(self, effect: DeclareRankDead | EvictRank) -> None:
        """The coordinator goes on without a rank."""
        self.taken_out.add(effect.rank)
        drained = any(effect.rank in ranks for ranks in self.drains.values())
        leaves = effect.reason == "exited" or (drained and effect.reason.startswith("drained by"))
        guilty = effect.rank in self.struck or leaves
        self.rules.require(guilty, "innocence", f"{effect} though nothing befell it")

    def loss_alerted(self, effect: RaiseAlert) -> None:
        """The operator is told of a loss: it is none if the rank was only drained."""
        self.rules.require(effect.rank in self.struck, "innocence", f"{effect} of nobody struck")

    def drain_announced(self, effect: Announce) -> None:
        """A host has left, or will not."""
        if effect.topic == "host_drained":
            self.drained.add(HostName(str(effect.fields["host"])))
        elif effect.topic == "drain_called_off":
            self.drained.update(self.drains)

    def struck_silent(self, rank: Rank, *, greeted: bool) -> None:
        """This rank can say nothing more; whether it had said Hello."""
        scenario = self.rules.scenario
        limit = scenario.heartbeat_timeout_s if greeted else scenario.rendezvous_timeout_s
        self.silent_since.setdefault(rank, (self.rules.now(), limit + SLACK_S + scenario.absent_s))

    def look_for_the_forgotten(self) -> None:
        """Every rank that fell silent is taken out within its ceiling, while the run goes on."""
        if self.saving_last or self.finished is not None:
            return
        for rank, (since, limit) in self.silent_since.items():
            forgotten = rank not in self.taken_out and self.rules.now() - since > limit
            self.rules.require(
                not forgotten, "ceilings", f"rank {rank} is silent since {since:.3f} s"
            )

    def run_finished(self, effect: RunFinished) -> None:
        """The coordinator says that the run is over."""
        self.rules.require(self.finished is None, "ends once", f"{effect} after {self.finished}")
        self.finished = effect
        self._require_cause(effect)
        self._require_stopped_in_time()
        open_drains = set(self.drains) - self.drained
        self.rules.require(
            effect.reason != "finished" or not open_drains,
            "drains",
            f"{effect} while {open_drains} wait to leave",
        )
        if self.rules.scenario.calm:
            self.rules.require(effect.exit_code == ExitCode.DONE, "ends well", f"{effect}")

    def _require_cause(self, effect: RunFinished) -> None:
        """An end has one of the causes that it claims."""
        scenario, applied = self.rules.scenario, self.applied
        hangs = scenario.hanging_save is not None
        left = {rank for host in self.drained for rank in self.drains.get(host, ())}
        lost_all = len(self.struck | left) == scenario.world_size
        causes = {
            "finished": True,
            "nothing_trained": Action.POISON in applied
            or scenario.skip_share > 0
            or scenario.saved is not None,
            "stopped": any(order.kind is not None for order in scenario.orders),
            SaveReason.REDUCE_STALL.value: hangs or self.stuck_outside_batches,
            SaveReason.NON_FINITE.value: Action.POISON in applied,
            SaveReason.MAX_FAILURE_EXCEEDED.value: scenario.max_failure is not None,
            SaveReason.ALL_RANKS_LOST.value: lost_all,
            "rendezvous_failed": bool(self.struck),
            "initial_broadcast_failed": bool(self.struck),
        }
        self.rules.require(causes.get(effect.reason, False), "causes", f"{effect} after {applied}")
        whole = self.saved or scenario.failing_saves or hangs or effect.reason == "stopped"
        self.rules.require(whole, "saves", f"{effect} without a bundle")
        unsaved = effect.exit_code == ExitCode.NOT_SAVED
        may_fail = hangs or bool(scenario.failing_saves)
        self.rules.require(
            may_fail or not unsaved, "causes", f"{effect} though every write succeeds"
        )

    def _require_stopped_in_time(self) -> None:
        if self.stop_at is None:
            return
        scenario = self.rules.scenario
        limit = scenario.stop_grace_s + 6 * scenario.save_s + scenario.leave_timeout_s
        limit += scenario.absent_s + _ROUND_WAITS_S + SLACK_S
        if scenario.hanging_save is not None:
            limit += 2 * scenario.stall_timeout_s
        took = self.rules.now() - self.stop_at
        self.rules.require(
            took <= limit, "ceilings", f"stopping took {took:.1f} s of {limit:.1f} s"
        )
