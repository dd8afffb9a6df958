"""How many batches each rank does in a window, from what the windows before it took.

What it is: the memory of speeds, costs and verdicts, and the order in which the rules are
applied. A slow device, the *anchor rank*, does `anchor` batches; each other rank does as
many as fit into that time.
What it is not: a clock, a plan or a divisor; the masses of an average are counted by the
ranks.
Who drives it: the coordinator: `report` and then `apply` once a finished cycle, `lose` when
a rank is gone, `set_window_cap` when an event begins.

    PROBE ──first report──▶ WARMUP ──5──▶ STABLE ──20──▶ MATURE
    counts: equal           by speed; growth is strict    growth, elections
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import assert_never

from flodl_core.elche import reasons
from flodl_core.elche.count_book import CountBook
from flodl_core.elche.election import elect_anchor
from flodl_core.elche.feed import Feed, MarginalMemory, select_feed
from flodl_core.elche.growth import (
    CostRing,
    GrowthLatch,
    Proposal,
    nudged_anchor,
    propose_growth,
    relaxed_anchor,
)
from flodl_core.elche.guards import NudgeDown, Stable, SuppressGrowth, Verdict
from flodl_core.elche.record import ElchePhase, ElcheRecord
from flodl_core.elche.report import Decision, StartValues, WindowReport
from flodl_core.elche.settings import MATURE_AT, STABLE_AT, WARMUP_MARGIN, ElcheSettings
from flodl_core.elche.shares import RecentShares
from flodl_core.elche.speed import CohortSpeeds
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Rank
from flodl_core.units import Milliseconds

_ELECTING = (ElchePhase.STABLE, ElchePhase.MATURE)


class Balancer:
    """The cadence of one run."""

    def __init__(
        self, settings: ElcheSettings, ranks: Sequence[Rank], *, start: StartValues | None = None
    ) -> None:
        """Begin with `ranks`, ascending, all of them alive.

        Raises:
            ConfigError: pinned counts are given and are not one a rank.
        """
        start = start or StartValues()
        self._settings = settings
        self._world = tuple(ranks)
        self._speeds = CohortSpeeds(ranks)
        self._book = CountBook(settings, ranks, speeds=start.speeds)
        self._memory = MarginalMemory()
        self._shares = RecentShares()
        self._costs = CostRing()
        self._latch = GrowthLatch()
        self._anchor = settings.first_anchor
        self._anchor_rank = _first_anchor_rank(start)
        self._phase = ElchePhase.PROBE
        self._calibrations = 0
        self._proposal: Proposal | None = None
        self._measured = False
        self._last_verdict: Verdict | None = None
        self._reason = reasons.NOTHING_YET
        self._pin()

    @property
    def counts(self) -> Mapping[Rank, int]:
        """Batches of the next window of each alive rank, each at least 1."""
        return MappingProxyType(self._book.counts)

    @property
    def anchor(self) -> int:
        """Batches of the anchor rank in a window, before any bound."""
        return self._anchor

    @property
    def anchor_rank(self) -> Rank | None:
        """The rank whose batches the window is counted in."""
        return self._anchor_rank

    @property
    def phase(self) -> ElchePhase:
        """How much is known."""
        return self._phase

    @property
    def calibration_count(self) -> int:
        """Reports that measured something."""
        return self._calibrations

    @property
    def overhead(self) -> float | None:
        """Averaging's part of the window, 0 to 1, by the median of the last three reports."""
        return self._costs.overhead(self._anchor, self._slow_ms)

    @property
    def overhead_target(self) -> float:
        """What averaging may take of a window."""
        return self._settings.overhead_target

    @property
    def window_cap_binding(self) -> bool:
        """Whether counts are smaller because the event has no more batches."""
        return self._book.cap_binding

    @property
    def growth_enabled(self) -> bool:
        """Whether the anchor may grow, as far as settings and verdicts go."""
        may_grow = self._settings.growth and not self._book.is_pinned
        return may_grow and self._latch.shut_because is None

    @property
    def last_verdict(self) -> Verdict | None:
        """The verdict of the last finished cycle."""
        return self._last_verdict

    @property
    def reason(self) -> str:
        """One sentence: why the counts are what they are."""
        return self._reason

    @property
    def recent_shares(self) -> Mapping[Rank, float]:
        """Part of the batches of each alive rank over the last ten windows; they sum to 1."""
        return self._shares.mean(self._book.counts)

    @property
    def ms_per_batch(self) -> Mapping[Rank, Milliseconds]:
        """The trusted speed of each alive rank that has one."""
        return self._speeds.means_ms

    @property
    def planned_window_ms(self) -> Milliseconds | None:
        """What the slowest rank needs for its count; None if no rank is measured."""
        counts = self._book.counts
        return max((ms * counts[rank] for rank, ms in self._speeds.means_ms.items()), default=None)

    def set_window_cap(self, cap_batches: int | None) -> Decision:
        """From now on all counts together stay within the batches of an event.

        Args:
            cap_batches: whole batches; None is no cap.
        """
        return self._decide(counts_changed=self._book.set_cap(cap_batches))

    def lose(self, rank: Rank) -> Decision:
        """A rank is gone: it gets no count, and if it was the anchor rank another is elected."""
        if not self._speeds.lose(rank):
            return self._decide(counts_changed=False)
        before = dict(self._book.counts)
        self._memory.forget(rank)
        self._book.lose(rank)
        if rank == self._anchor_rank:
            self._anchor_rank = None
            self._elect()
            self._pin()
        self._follow(is_forced=False)
        self._reason = reasons.rank_gone(rank, len(self._book.counts))
        return self._decide(counts_changed=self._book.counts != before)

    def report(self, report: WindowReport) -> Decision:
        """Take in what a window took, and propose growth; `apply` commits or drops it."""
        self._proposal = None
        self._measured = False
        alive = self._speeds.ranks
        rows = self._memory.recall([row for row in report.rows if row.rank in alive])
        feed = select_feed(rows, self._settings.scale)
        if feed is None:
            self._reason = reasons.NOTHING_MEASURED
            return self._decide(counts_changed=False)
        self._speeds.push(feed.samples_ms)
        if self._must_elect:
            self._elect()
        if self._slow_ms is None:
            self._reason = reasons.anchor_unmeasured(self._anchor_rank)
            return self._decide(counts_changed=False)
        self._measured = True
        if report.feeds_growth:
            self._costs.push(self._cost_ms(report, feed))
            self._proposal = self._propose()
        changed = self._follow(is_forced=not self._calibrations)
        self._shares.push(self._book.counts)
        self._calibrations += 1
        self._advance_phase()
        self._reason = self._say(feeds_growth=report.feeds_growth)
        return self._decide(counts_changed=changed)

    def apply(self, verdict: Verdict) -> Decision:
        """Let a guard's verdict decide about the growth that waits."""
        proposal, self._proposal = self._proposal, None
        self._last_verdict = verdict
        before = self._anchor
        match verdict:
            case Stable():
                self._latch.stable()
                if proposal is not None and self._anchor_rank is not None:
                    self._anchor = proposal.anchor
                    self._reason = reasons.after_growth(
                        before, proposal, rank=self._anchor_rank, settings=self._settings
                    )
                elif self._may_relax:
                    self._relax()
            case SuppressGrowth(reason):
                self._latch.shut(reason)
                self._reason = reasons.after_shut(before, before, reason)
            case NudgeDown(factor, reason):
                self._latch.shut(reason)
                if not self._book.is_pinned:
                    self._anchor = nudged_anchor(before, factor)
                self._reason = reasons.after_shut(before, self._anchor, reason)
            case _:
                assert_never(verdict)
        changed = self._anchor != before and self._follow(is_forced=True)
        return self._decide(counts_changed=changed)

    def record(self, trend_history: tuple[float, ...] = (), *, guard: str = "level") -> ElcheRecord:
        """Return what a checkpoint keeps; the history is that guard's."""
        speeds = self._speeds.means_ms
        return ElcheRecord(
            anchor=self._anchor,
            anchor_rank=self._anchor_rank,
            smoothed_ms_per_batch=tuple(speeds.get(rank, 0.0) for rank in self._world),
            phase=self._phase,
            calibration_count=self._calibrations,
            trend_history=trend_history,
            guard=guard,
        )

    def restore(self, record: ElcheRecord) -> bool:
        """Take up what a checkpoint kept, before the first report; settings stay as they are.

        Each known speed becomes one sample.

        Returns:
            False if the record is of another world size: then nothing is taken up and
            speeds are measured anew, which the reason says.

        Raises:
            LocalProtocolError: a report or a loss came before.
        """
        if self._calibrations or self._speeds.ranks != self._world:
            raise LocalProtocolError(
                "the cadence is restored after it has begun; expected before the first report"
            )
        saved = record.smoothed_ms_per_batch
        if len(saved) != len(self._world):
            self._reason = reasons.other_world(len(saved), len(self._world))
            return False
        known = {rank: ms for rank, ms in zip(self._world, saved, strict=True) if ms > 0}
        if not self._book.is_pinned:
            self._anchor = min(record.anchor, self._settings.max_anchor)
            self._anchor_rank = record.anchor_rank if record.anchor_rank in self._world else None
        if known:
            self._speeds.push(known)
            self._calibrations = max(1, record.calibration_count)
            self._phase = record.phase
            if self._slow_ms is None:
                self._elect()
        self._follow(is_forced=True)
        self._reason = reasons.RESTORED
        return True

    @property
    def _slow_ms(self) -> Milliseconds | None:
        rank = self._anchor_rank
        return None if rank is None else self._speeds.means_ms.get(rank)

    @property
    def _must_elect(self) -> bool:
        if not self._calibrations or self._anchor_rank is None or self._phase in _ELECTING:
            return True
        return self._slow_ms is None and self._speeds.is_forgotten(self._anchor_rank)

    def _elect(self) -> None:
        """Elect among the measured; what was assumed before the first report has no seat."""
        if not self._book.is_pinned:
            current = self._anchor_rank if self._calibrations else None
            self._anchor_rank = elect_anchor(self._speeds.means_ms, current)

    def _pin(self) -> None:
        """With pinned counts the rank of the smallest is the anchor rank."""
        counts = self._book.counts
        if self._book.is_pinned and counts:
            self._anchor = min(counts.values())
            self._anchor_rank = min(rank for rank in counts if counts[rank] == self._anchor)

    def _cost_ms(self, report: WindowReport, feed: Feed) -> Milliseconds:
        fill_ms = feed.fill_ms.get(self._anchor_rank, 0.0) if self._anchor_rank is not None else 0.0
        sync_ms = report.sync_ms - report.longest_boundary_wait_ms
        return fill_ms + (0.0 if sync_ms < 0 else sync_ms)

    def _propose(self) -> Proposal | None:
        overhead = self.overhead
        ready = self._phase is not ElchePhase.PROBE and self.growth_enabled
        if overhead is None or not ready or self._book.cap_binding:
            return None
        margin = WARMUP_MARGIN if self._phase is ElchePhase.WARMUP else 1.0
        return propose_growth(self._anchor, overhead, margin=margin, settings=self._settings)

    @property
    def _may_relax(self) -> bool:
        ready = self._measured and self.growth_enabled and not self._book.cap_binding
        return self._settings.relax_up and ready

    def _relax(self) -> None:
        speeds = self._speeds.means_ms.values()
        after = relaxed_anchor(self._anchor, speeds, settings=self._settings)
        if after > self._anchor:
            self._reason = reasons.after_relaxing(self._anchor, after)
            self._anchor = after

    def _follow(self, *, is_forced: bool) -> bool:
        """Let the counts follow; return whether one changed."""
        if self._anchor_rank is not None and self._slow_ms is not None:
            return self._book.follow(
                self._anchor,
                self._anchor_rank,
                speeds_ms=self._speeds.means_ms,
                is_forced=is_forced,
            )
        return self._book.level(self._anchor) if is_forced else False

    def _advance_phase(self) -> None:
        match self._phase:
            case ElchePhase.PROBE:
                self._phase = ElchePhase.WARMUP
            case ElchePhase.WARMUP if self._calibrations >= STABLE_AT:
                self._phase = ElchePhase.STABLE
            case ElchePhase.STABLE if self._calibrations >= MATURE_AT:
                self._phase = ElchePhase.MATURE
            case _:
                pass

    def _say(self, *, feeds_growth: bool) -> str:
        if self._book.is_pinned:
            return reasons.PINNED
        standing = reasons.Standing(
            anchor=self._anchor,
            anchor_rank=self._anchor_rank,
            overhead=self.overhead,
            proposal=self._proposal,
            feeds_growth=feeds_growth,
            cap_batches=self._book.cap_batches if self._book.cap_binding else None,
        )
        return reasons.after_report(standing, latch=self._latch, settings=self._settings)

    def _decide(self, *, counts_changed: bool) -> Decision:
        return Decision(
            counts=dict(self._book.counts),
            anchor=self._anchor,
            anchor_rank=self._anchor_rank,
            phase=self._phase,
            overhead=self.overhead,
            proposed_anchor=self._proposal.anchor if self._proposal else None,
            measured=self._measured,
            counts_changed=counts_changed,
            window_cap_binding=self._book.cap_binding,
            growth_enabled=self.growth_enabled,
            reason=self._reason,
        )


def _first_anchor_rank(start: StartValues) -> Rank | None:
    if start.anchor_rank is not None or not start.speeds:
        return start.anchor_rank
    slowest = min(start.speeds.values())
    return min(rank for rank, speed in start.speeds.items() if speed == slowest)
