"""Cadence: how many batches each rank is dealt, and what a finished window says of that.

What it is: the balancer and the guard of one run, with the counts cut to what is left of
an event. A report goes into the balancer, the divergences to the guard, and the guard's
verdict decides about the growth that waits.
What it is not: a plan or a pool; it says numbers of batches. Sync has none of it.
Who drives it: `coordinator.windows` deals by it, `coordinator.averaging` reports to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from flodl_core.dispatch.final_window import apportion, is_final_window
from flodl_core.elche.balancer import Balancer
from flodl_core.elche.guards import (
    ConvergenceGuard,
    DivergenceReport,
    LevelGuard,
    NoGuard,
    NudgeDown,
    Stable,
    SuppressGrowth,
    Verdict,
)
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
        late_factor: of the planned window; a rank whose end is projected beyond it has the
            window cut. More than 1.
        start: what is assumed of the ranks' speeds before anything is measured.

    Raises:
        LocalProtocolError: late_factor is 1 or less.
    """

    elche: ElcheSettings = field(default_factory=ElcheSettings)
    guard: GuardKind = GuardKind.LEVEL
    late_factor: float = 1.5
    start: StartValues = field(default_factory=StartValues)

    def __post_init__(self) -> None:
        if not self.late_factor > 1:
            raise LocalProtocolError(f"late_factor = {self.late_factor}; expected more than 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Batches of the next window.

    Attributes:
        batches: by alive rank; 0 where an event has too few for everybody.
        is_final: whether they are the last ones of the event.
    """

    batches: Mapping[Rank, int]
    is_final: bool

    @property
    def total(self) -> int:
        """Batches of the whole cohort."""
        return sum(self.batches.values())


class Cadence:
    """The cadence of one run.

    Args:
        settings: of this run.
        ranks: of the world, all of them.

    Raises:
        ConfigError: pinned counts are given and are not one a rank.

    Attributes:
        late_factor: of the planned window, for late ranks; None where counts are pinned, since
            then windows end where they are planned to, the same in every run.
        max_batch_diff: how far a count may lie above the smallest; None is no bound.
    """

    def __init__(self, settings: CadenceSettings, ranks: Sequence[Rank]) -> None:
        self._world = len(ranks)
        self.balancer = Balancer(settings.elche, ranks, start=settings.start)
        self._guard: ConvergenceGuard = (
            LevelGuard() if settings.guard is GuardKind.LEVEL else NoGuard()
        )
        pinned = settings.elche.pinned_counts is not None
        self.late_factor = None if pinned else settings.late_factor
        self.max_batch_diff = settings.elche.max_batch_diff

    @property
    def guard_name(self) -> str:
        """One word for who judges."""
        return self._guard.name

    @property
    def last_verdict(self) -> str | None:
        """What the guard said of the last finished cycle, in words."""
        return word_verdict(self.balancer.last_verdict)

    @property
    def counts(self) -> tuple[int, ...]:
        """Batches a window by rank of the world; 0 for who is gone."""
        counts = self.balancer.counts
        return tuple(counts.get(Rank(rank), 0) for rank in range(self._world))

    def open_event(self, batches: int) -> None:
        """An event of so many batches begins; no window holds more."""
        self.balancer.set_window_cap(batches)

    def slots(self, left_batches: int) -> Slots:
        """Return what each alive rank is to be dealt of what is left of the event."""
        counts = self.counts
        is_final = left_batches == 0 or is_final_window(left_batches, counts)
        shares = apportion(left_batches, counts) if is_final else counts
        return Slots(
            batches={rank: shares[rank] for rank in self.balancer.counts}, is_final=is_final
        )

    def planned_ms(self, slots: Slots) -> Milliseconds | None:
        """Return what the slowest rank needs for its slot; None if no rank is measured."""
        means = self.balancer.ms_per_batch
        known = [ms * slots.batches.get(rank, 0) for rank, ms in means.items()]
        return max(known, default=None)

    def close_window(self, report: WindowReport, divergence: DivergenceReport) -> None:
        """Take in a finished cycle: its costs, then the guard's verdict on its divergences."""
        self.balancer.report(report)
        self.balancer.apply(self._guard.review(divergence))

    def lose(self, rank: Rank) -> None:
        """A rank takes no further part."""
        self.balancer.lose(rank)

    def record(self) -> ElcheRecord:
        """Return what a checkpoint keeps."""
        return self.balancer.record(self._guard.history)


def word_verdict(verdict: Verdict | None) -> str | None:
    """Return a verdict in words; None before the first."""
    match verdict:
        case None:
            return None
        case Stable():
            return "stable"
        case SuppressGrowth(reason):
            return f"suppress growth: {reason}"
        case NudgeDown(factor, reason):
            return f"nudge down by {factor:g}: {reason}"
        case _:
            assert_never(verdict)
