"""Cadence: how many batches each rank is dealt, and what a finished window says of that.

What it is: the balancer and the guard of one run, with the counts cut to what is left of
an event. A report goes into the balancer, the divergences to the guard, and the guard's
verdict decides about the growth that waits. Where ranks run on it also says how far.
What it is not: a plan or a pool; it says numbers of batches. Sync has none of it.
Who drives it: `coordinator.windows` deals by it, `coordinator.averaging` reports to it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flodl_core.dispatch.final_window import apportion, is_final_window
from flodl_core.dispatch.run_ahead import run_ahead
from flodl_core.elche.balancer import Balancer
from flodl_core.elche.callback_cost import absorb_slack
from flodl_core.elche.growth_guard import GrowthGuard
from flodl_core.elche.guards import (
    EASGD_LEVEL_THRESHOLD,
    ConvergenceGuard,
    DivergenceReport,
    LevelGuard,
    NoGuard,
    NudgeDown,
    Stable,
)
from flodl_core.elche.judge import Judge, Judgement, word_verdict
from flodl_core.elche.meta_controller import LearningRate
from flodl_core.elche.overshoot import Overshoot
from flodl_core.elche.record import ElcheRecord
from flodl_core.elche.report import StartValues, WindowReport
from flodl_core.elche.settings import ElcheSettings
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import GuardKind, Rank
from flodl_core.units import Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CadenceSettings:
    """The numbers of a run in Cadence.

    Attributes:
        elche: of the balancer.
        guard: who judges.
        custom_guard: who judges instead, if given; one that fails is taken for Stable.
        meta: whether the meta-controller has a say too.
        late_factor: of the planned window; a rank whose end is projected beyond it has the
            window cut. More than 1.
        start: what is assumed of the ranks' speeds before anything is measured.
        overshoot: batches that the fastest rank may run on beyond its count, for good; None
            lets verdicts decide. Only where ranks run on.

    Raises:
        LocalProtocolError: late_factor is 1 or less.
    """

    elche: ElcheSettings = field(default_factory=ElcheSettings)
    guard: GuardKind = GuardKind.LEVEL
    custom_guard: ConvergenceGuard | None = None
    meta: bool = True
    late_factor: float = 1.5
    start: StartValues = field(default_factory=StartValues)
    overshoot: int | None = None

    def __post_init__(self) -> None:
        if not self.late_factor > 1:
            raise LocalProtocolError(f"late_factor = {self.late_factor}; expected more than 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Batches of the next window.

    Attributes:
        batches: by alive rank; 0 where an event has too few for everybody. Where ranks run
            on, those that a rank may do before the next average, its overshoot included.
        planned: of these, the ones that the next average waits for.
        is_final: whether they are the last ones of the event.
    """

    batches: Mapping[Rank, int]
    planned: Mapping[Rank, int]
    is_final: bool

    @property
    def total(self) -> int:
        """Batches of the whole cohort that the next average waits for."""
        return sum(self.planned.values())


@dataclass(frozen=True, slots=True)
class CadenceAlert:
    """What an operator must know of a verdict.

    Attributes:
        alert_class: drift or guard_failed.
    """

    alert_class: str
    detail: str


class Cadence:
    """The cadence of one run.

    Args:
        settings: of this run.
        ranks: of the world, all of them.
        runs_on: whether ranks train on while they are averaged.

    Raises:
        ConfigError: pinned counts are given and are not one a rank.

    Attributes:
        is_pinned: whether counts are given for good.
        late_factor: of the planned window, for late ranks; None where counts are pinned, since
            then windows end where they are planned to, the same in every run.
        max_batch_diff: how far a count may lie above the smallest; None is no bound.
        verdict_by: who gave the last verdict; None before the first.
    """

    def __init__(
        self, settings: CadenceSettings, ranks: Sequence[Rank], *, runs_on: bool = False
    ) -> None:
        self._world = len(ranks)
        self.balancer = Balancer(settings.elche, ranks, start=settings.start)
        self.judge = Judge(_guard_of(settings, runs_on=runs_on), has_meta=settings.meta)
        self._overshoot = Overshoot(settings.overshoot) if runs_on else None
        pinned = settings.elche.pinned_counts is not None
        self.verdict_by: str | None = None
        self._told_of_drift = False
        self.is_pinned = pinned
        self.late_factor = None if pinned else settings.late_factor
        self.max_batch_diff = settings.elche.max_batch_diff

    @property
    def guard_name(self) -> str:
        """One word for who judges."""
        return self.judge.name

    @property
    def last_verdict(self) -> str | None:
        """What the guard said of the last finished cycle, in words."""
        return word_verdict(self.balancer.last_verdict)

    @property
    def counts(self) -> tuple[int, ...]:
        """Batches a window by rank of the world; 0 for who is gone."""
        counts = self.balancer.counts
        return tuple(counts.get(Rank(rank), 0) for rank in range(self._world))

    @property
    def recent_shares(self) -> tuple[float, ...]:
        """Part of the batches by rank of the world, of late; 0 for who is gone."""
        shares = self.balancer.recent_shares
        return tuple(shares.get(Rank(rank), 0.0) for rank in range(self._world))

    @property
    def overshoot(self) -> int | None:
        """Batches that the fastest rank may run on beyond its count; None where none does."""
        return self._overshoot.batches if self._overshoot is not None else None

    def open_event(self, batches: int) -> None:
        """An event of so many batches begins; no window holds more."""
        self.balancer.set_window_cap(batches)

    def slots(
        self, left_batches: int, *, slack_ms: Mapping[Rank, Milliseconds] | None = None
    ) -> Slots:
        """Return what each alive rank is to be dealt of what is left of the event.

        Args:
            left_batches: whole batches.
            slack_ms: what ranks will lack of this window, for callbacks.
        """
        balancer = self.balancer
        own = absorb_slack(balancer.counts, slack_ms or {}, balancer.ms_per_batch)
        counts = tuple(own.get(Rank(rank), 0) for rank in range(self._world))
        if self._overshoot is not None:
            ahead = run_ahead(left_batches, counts, self._overshoot.batches)
            shares, planned, is_final = ahead.batches, ahead.planned, ahead.is_final
        else:
            is_final = left_batches == 0 or is_final_window(left_batches, counts)
            shares = planned = apportion(left_batches, counts) if is_final else counts
        return Slots(
            batches={rank: shares[rank] for rank in balancer.counts},
            planned={rank: planned[rank] for rank in balancer.counts},
            is_final=is_final,
        )

    def planned_ms(
        self, slots: Slots, *, slack_ms: Mapping[Rank, Milliseconds] | None = None
    ) -> Milliseconds | None:
        """Return what the slowest rank needs for its slot; None if no rank is measured."""
        means, slack = self.balancer.ms_per_batch, slack_ms or {}
        known = [
            ms * slots.planned.get(rank, 0) + slack.get(rank, 0.0) for rank, ms in means.items()
        ]
        return max(known, default=None)

    @property
    def anchor_wall_ms(self) -> Milliseconds | None:
        """What the anchor rank needs for a window; None before it is measured."""
        rank = self.balancer.anchor_rank
        own_ms = None if rank is None else self.balancer.ms_per_batch.get(rank)
        return None if own_ms is None else self.balancer.anchor * own_ms

    def close_window(
        self,
        report: WindowReport,
        divergence: DivergenceReport,
        *,
        rate: LearningRate | None = None,
    ) -> tuple[CadenceAlert, ...]:
        """Take in a finished cycle: its costs, then the verdict on its divergences.

        Args:
            report: what the window took.
            divergence: how far the ranks were apart.
            rate: of learning, as the lowest alive rank told it.

        Returns:
            What an operator must know: each nudge, and the first verdict that turned growth
            off, with their reason, the first failure of the guard, and its end.
        """
        balancer = self.balancer
        balancer.report(report)
        could_grow = balancer.growth_enabled
        judgement = self.judge.review(
            divergence, anchor=balancer.anchor, phase=balancer.phase, rate=rate
        )
        before, self.verdict_by = balancer.anchor, judgement.by
        balancer.apply(judgement.verdict)
        if self._overshoot is not None:
            self._overshoot.judge(judgement.verdict)
        alerts = []
        if judgement.trouble and (self.judge.failures == 1 or judgement.ends_guard):
            alerts.append(_word_failure(self.guard_name, judgement))
        turned_off = could_grow and not balancer.growth_enabled and not self._told_of_drift
        if isinstance(judgement.verdict, NudgeDown) or turned_off:
            self._told_of_drift = True
            alerts.append(_word_drift(judgement, before, balancer.anchor))
        return tuple(alerts)

    def lose(self, rank: Rank) -> None:
        """A rank takes no further part."""
        self.balancer.lose(rank)

    def record(self) -> ElcheRecord:
        """Return what a checkpoint keeps."""
        return self.balancer.record(self.judge.history, guard=self.guard_name)

    def restore(self, record: ElcheRecord) -> bool:
        """Take up what a checkpoint kept, before the first report.

        Returns:
            False if the record is of another world size, so that speeds are measured anew.
        """
        if not self.balancer.restore(record):
            return False
        if record.guard == self.guard_name:
            self.judge.restore(record.trend_history)
        return True


_GUARDS: Mapping[GuardKind, Callable[[], ConvergenceGuard]] = {
    GuardKind.LEVEL: LevelGuard,
    GuardKind.GROWTH: GrowthGuard,
    GuardKind.NONE: NoGuard,
}


def _guard_of(settings: CadenceSettings, *, runs_on: bool) -> ConvergenceGuard:
    """Return who judges; ranks that run on stay further apart, and may."""
    if settings.custom_guard is not None:
        return settings.custom_guard
    if runs_on and settings.guard is GuardKind.LEVEL:
        return LevelGuard(EASGD_LEVEL_THRESHOLD)
    return _GUARDS[settings.guard]()


def _word_failure(guard: str, judgement: Judgement) -> CadenceAlert:
    effect = "such a cycle counts as stable and the run goes on"
    if judgement.ends_guard:
        effect = "it is asked no more: every cycle counts as stable and the run goes on"
    return CadenceAlert("guard_failed", f"guard {guard}: {judgement.trouble}; {effect}")


def _word_drift(judgement: Judgement, before: int, after: int) -> CadenceAlert:
    verdict = judgement.verdict
    reason = "" if isinstance(verdict, Stable) else verdict.reason
    shrank = f"the anchor shrank from {before} to {after} batches"
    effect = shrank if after < before else "windows do not grow"
    return CadenceAlert("drift", f"{effect} ({judgement.by}): {reason}")
