"""The oracle of ends: the innocent stay, the lost are noticed, every end has its cause.

What it is: who was struck by which fault and since when somebody is silent, compared
with whom the coordinator takes out, and with how and when the run ends.
What it is not: a watcher of samples or values.
Who drives it: `simulation.faults` and `simulation.world` tell, `oracles` asks.
"""

from dataclasses import dataclass, field

from flodl_core.coordinator.effects import DeclareRankDead, EvictRank, RunFinished
from flodl_core.ids import ExitCode, Rank, SaveReason
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
    silent_since: dict[Rank, tuple[Seconds, Seconds]] = field(default_factory=dict)
    """Ranks that can say nothing more: since when, and how long until they must be taken out."""
    taken_out: set[Rank] = field(default_factory=set)
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
        guilty = effect.rank in self.struck or effect.reason == "exited"
        self.rules.require(guilty, "innocence", f"{effect} though nothing befell it")

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
        if self.rules.scenario.calm:
            self.rules.require(effect.exit_code == ExitCode.DONE, "ends well", f"{effect}")

    def _require_cause(self, effect: RunFinished) -> None:
        """An end has one of the causes that it claims."""
        scenario, applied = self.rules.scenario, self.applied
        hangs = scenario.hanging_save is not None
        lost_all = len(self.struck) == scenario.world_size
        causes = {
            "finished": True,
            "stopped": any(order.kind is not None for order in scenario.orders),
            SaveReason.REDUCE_STALL.value: hangs or Action.STICK in applied,
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
