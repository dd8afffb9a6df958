"""Events, their samples, and what became of them: the only bookkeeper's desk.

What it is: which event is open, who holds which of its samples, and the entries of
the sample log at each commit. A sample is trained when the params round that holds
its step is committed with its rank in `ranks_accepted`; it is dropped if its rank
declared its values non-finite, or skipped every step of the window. Where ranks are
dealt chunks, what nobody holds lies in a pool; where each has its equal part at once
there is none.
What it is not: a schedule; it sends nothing.
Who drives it: `coordinator.averaging`, `dead_ranks`, `windows` and `advance`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from flodl_core.coordinator.effects import SampleEntry, SampleStatus
from flodl_core.coordinator.facts import Arrangement, EpochCoverage, ResumePoint
from flodl_core.dispatch.accounts import SampleAccounts
from flodl_core.dispatch.chunk_pool import ChunkPool
from flodl_core.dispatch.epoch_plan import EventSpan, plan_sync, share_out, span_event
from flodl_core.dispatch.ranges import (
    Range,
    append_range,
    merge_ranges,
    overlap_size,
    subtract_ranges,
)
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Cycle, Rank
from flodl_core.messages.control import EpochPlan
from flodl_core.messages.data import RankTally
from flodl_core.messages.job import RunSpec
from flodl_core.units import Seconds

NON_FINITE = "non-finite"
SKIPPED_STEPS = (
    "no optimizer step in this window (skipped by the loss scaler, or gradients accumulated "
    "over batches)"
)


@dataclass(frozen=True, slots=True)
class OpenEvent:
    """The event under way."""

    span: EventSpan
    opened_at: Seconds
    first_cycle: int
    """The number that the first cycle of this event has."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a cycle did to the books.

    Attributes:
        entries: for the sample log; every range in them is settled for good.
        partly_counted: samples of a rank that is not accepted, in some buckets of the sum.
        overdrawn: ranks that claimed more samples than they hold, with both numbers.
    """

    entries: tuple[SampleEntry, ...]
    partly_counted: tuple[tuple[Rank, int], ...]
    overdrawn: tuple[tuple[Rank, int, int], ...]


class EpochBook:
    """The events of one run, in order; `ratios` by rank are their parts where all is given out."""

    def __init__(self, spec: RunSpec, *, ratios: Sequence[float] = ()) -> None:
        self._spec, self._ratios = spec, tuple(ratios)
        self._accounts = SampleAccounts()
        self._next = 0
        self._pool: ChunkPool | None = None
        self._resumed: EpochCoverage | None = None
        self._arranged: Arrangement | None = None
        self.open: OpenEvent | None = None
        self.trained_samples = 0
        self.dropped_samples = 0
        self.events = spec.epochs * spec.epoch_splits
        splits = range(spec.epoch_splits) if self.events else range(0)
        self._spans = tuple(self._span(split) for split in splits)
        self.pass_samples = sum(span.whole.size for span in self._spans)
        """Samples of one pass that are given out."""
        self.tail_samples = sum(span.tail.size for span in self._spans)
        """Samples of one pass that are not, being less than a batch."""

    def _span(self, event: int) -> EventSpan:
        spec = self._spec
        return span_event(
            event, spec.n_samples, splits=spec.epoch_splits, batch_size=spec.batch_size
        )

    def restore(self, point: ResumePoint) -> None:
        """Go on where a save ended; before the first event.

        Raises:
            LocalProtocolError: the coverage is of another event, or lies outside it.
        """
        assert self.open is None
        self._next = point.epoch
        self.trained_samples, self.dropped_samples = point.samples_trained, point.samples_dropped
        coverage = point.coverage
        if coverage is None:
            return
        whole = self._span(coverage.epoch).whole
        open_parts = [*coverage.uncovered, *coverage.dropped]
        arranged = point.arrangement
        is_arranged = arranged is None or merge_ranges(arranged.everything) == coverage.uncovered
        inside = not subtract_ranges(open_parts, [whole]) and not overlap_size(open_parts)
        if coverage.epoch != point.epoch or not inside or not is_arranged:
            raise LocalProtocolError(
                f"a coverage of event {coverage.epoch} to go on with in event {point.epoch} of "
                f"{whole}: {open_parts}; expected disjoint ranges of that event"
            )
        self._resumed, self._arranged = coverage, arranged

    @property
    def total_samples(self) -> int:
        """Samples that the whole run gives out."""
        return self._spec.epochs * self.pass_samples

    @property
    def next_event(self) -> int:
        """The number of the event that begins next; `events` when none is left."""
        return self._next

    @property
    def has_next(self) -> bool:
        """Whether an event is left to begin."""
        return self._next < self.events

    def begin(
        self, ranks: Sequence[Rank], now: Seconds, *, cycle: int
    ) -> tuple[EventSpan, dict[Rank, list[EpochPlan]]]:
        """Open the next event and give all its batches out, for windows of one batch.

        Args:
            ranks: the alive ones, ascending.
            now: when.
            cycle: the number that its first cycle will have.

        Returns:
            The plans of each rank, one a range and at least one. Of an event that a save had
            open: of its rest, as it was held if the world is the same.
        """
        span = self._open_next(now, cycle)
        whole = plan_sync(span, ranks, self._spec.batch_size, ratios=self._ratios)
        plans = {rank: [plan] for rank, plan in whole.items()}
        if self._resumed is not None:
            plans = self._plan_rest(plans, self._resumed, ranks)
        for rank, parts in plans.items():
            for plan in parts:
                self._accounts.assign(rank, plan.epoch, Range(plan.offset, plan.size))
        return span, plans

    def _plan_rest(
        self, plans: dict[Rank, list[EpochPlan]], rest: EpochCoverage, ranks: Sequence[Rank]
    ) -> dict[Rank, list[EpochPlan]]:
        """Return plans of the rest of an event, made like those of the whole one."""
        held: dict[Rank, list[Range]] = {rank: [] for rank in ranks}
        spare = [*rest.uncovered]
        if self._arranged is not None and not self._arranged.reserved:
            spare = []
            for number, owned in enumerate(self._arranged.held):
                held.get(Rank(number), spare).extend(owned)
        for rank, part in share_out(spare, ranks, self._spec.batch_size):
            held[rank].append(part)
        self._resumed = self._arranged = None
        return {
            rank: [
                replace(plans[rank][0], offset=part.offset, size=part.size)
                for part in parts or [Range(0, 0)]
            ]
            for rank, parts in held.items()
        }

    def begin_pool(self, now: Seconds, *, cycle: int) -> EventSpan:
        """Open the next event for chunks, with that first cycle; `reserve` fills a pool."""
        return self._open_next(now, cycle)

    def reserve(self, counts: Sequence[int]) -> None:
        """Put the open event into a pool, with a span reserved for each rank.

        Args:
            counts: batches a window, by rank of the world; 0 for who takes no part.
        """
        assert self.open is not None
        rest, arranged = self._resumed, self._arranged
        self._resumed = self._arranged = None
        if rest is None:
            self._pool = ChunkPool.from_counts(self.open.span.whole, self._spec.batch_size, counts)
        elif arranged is not None and arranged.reserved:
            first = [part for parts in arranged.held for part in parts]
            self._pool = ChunkPool(arranged.reserved, reclaimed=[*first, *arranged.returned])
        else:
            self._pool = ChunkPool.from_holes(rest.uncovered, len(counts))

    def _open_next(self, now: Seconds, cycle: int) -> EventSpan:
        span = self._span(self._next)
        self._next += 1
        rest = self._resumed
        if rest is not None:
            cycle = rest.first_cycle
            trained = subtract_ranges([span.whole], [*rest.uncovered, *rest.dropped])
            self._accounts.settle_before(span.event, trained=trained, dropped=rest.dropped)
        self.open = OpenEvent(span=span, opened_at=now, first_cycle=cycle)
        return span

    @property
    def pooled_batches(self) -> int:
        """Batches of the open event that nobody holds and nobody has trained."""
        return self._pool.remaining_samples // self._spec.batch_size if self._pool else 0

    def draw(self, rank: Rank, batches: int) -> list[Range]:
        """Deal batches of the pool to a rank, as many as asked or as it has."""
        assert self.open is not None
        assert self._pool is not None
        wanted = batches * self._spec.batch_size
        drawn: list[Range] = []
        while wanted and (part := self._pool.take(rank, wanted)).size:
            self._accounts.assign(rank, self.open.span.event, part)
            append_range(drawn, part)
            wanted -= part.size
        return drawn

    def close(self) -> None:
        """The open event is aggregated; its accounts are let go."""
        assert self.open is not None
        self._accounts.forget_epoch(self.open.span.event)
        self.open = None
        self._pool = None

    @property
    def settled(self) -> bool:
        """Whether every sample of the open event is trained or dropped."""
        if self.open is None:
            return False
        span = self.open.span
        return self._accounts.is_settled(span.event, span.whole.size)

    def held_samples(self, rank: Rank) -> int:
        """Samples assigned to that rank whose fate is open."""
        return self._accounts.outstanding_samples(rank)

    def holdings(self, rank: Rank) -> list[Range]:
        """What that rank holds of the open event, in the order in which it trains it."""
        return [part for _, part in self._accounts.outstanding(rank)]

    def attributed_samples(self, rank: Rank) -> int:
        """Samples of the open event that the rank trained or saw dropped."""
        return self._accounts.attributed(rank, self.open.span.event) if self.open else 0

    def dropped_of_open(self) -> int:
        """Samples of the open event that were dropped."""
        if self.open is None:
            return 0
        return sum(part.size for part in self._accounts.coverage(self.open.span.event).dropped)

    def settle(
        self, cycle: Cycle, tallies: Iterable[RankTally], accepted: Sequence[Rank]
    ) -> Settlement:
        """Enter the outcome of a cycle: what each rank's tally says, given who was accepted.

        Args:
            cycle: which one.
            tallies: what the control round said of every rank.
            accepted: `ranks_accepted` of the committed params round; empty if none.
        """
        entries: list[SampleEntry] = []
        partly: list[tuple[Rank, int]] = []
        overdrawn: list[tuple[Rank, int, int]] = []
        for tally in tallies:
            held = self._accounts.outstanding_samples(tally.rank)
            if tally.samples > held:
                overdrawn.append((tally.rank, tally.samples, held))
            samples = min(tally.samples, held)
            if samples <= 0:
                continue
            if tally.declared or tally.n == 0:
                reason = NON_FINITE if tally.declared else SKIPPED_STEPS
                taken = self._accounts.drop(tally.rank, samples)
                self._complete(tally.rank, samples)
                self.dropped_samples += samples
                entries += self._entries(cycle, tally.rank, taken, reason)
            elif tally.rank in accepted:
                taken = self._accounts.commit(tally.rank, samples)
                self._complete(tally.rank, samples)
                self.trained_samples += samples
                entries += self._entries(cycle, tally.rank, taken, "")
            else:
                partly.append((tally.rank, samples))
        return Settlement(tuple(entries), tuple(partly), tuple(overdrawn))

    def _complete(self, rank: Rank, samples: int) -> None:
        if self._pool is not None:
            self._pool.complete(rank, samples)

    def _entries(
        self, cycle: Cycle, rank: Rank, taken: Sequence[tuple[int, Range]], reason: str
    ) -> list[SampleEntry]:
        by_event: dict[int, list[Range]] = {}
        for event, part in taken:
            by_event.setdefault(event, []).append(part)
        return [
            SampleEntry(
                pass_index=event // self._spec.epoch_splits,
                epoch=event,
                cycle=cycle,
                rank=rank,
                status=SampleStatus.DROPPED if reason else SampleStatus.TRAINED,
                reason=reason,
                ranges=tuple(parts),
            )
            for event, parts in by_event.items()
        ]

    def reclaim(self, rank: Rank, *, keep_samples: int = 0) -> list[Range]:
        """Take back what a rank holds of the open event, but its oldest `keep_samples`.

        Where there is a pool, what comes back lies at its front; else it is in nobody's
        account until it is given to somebody.
        """
        keep = min(keep_samples, self._accounts.outstanding_samples(rank))
        if self._pool is not None:
            self._pool.give_back(rank, keep_samples=keep)
        return [part for _, part in self._accounts.reclaim(rank, keep_samples=keep)]

    def give(self, parts: Sequence[Range], ranks: Sequence[Rank]) -> list[tuple[Rank, Range]]:
        """Assign ranges of the open event to these ranks, in whole batches, equally."""
        assert self.open is not None
        shares = share_out(parts, ranks, self._spec.batch_size)
        for rank, part in shares:
            self._accounts.assign(rank, self.open.span.event, part)
        return shares

    def coverage(self, *, without: Sequence[SampleEntry] = ()) -> tuple[EpochCoverage, ...]:
        """What is not settled of the open event; empty between events.

        Args:
            without: entries that are counted as not settled.
        """
        if self.open is None:
            return ()
        span = self.open.span
        undone = [part for one in without if one.epoch == span.event for part in one.ranges]
        uncovered = self._accounts.uncovered(span.event, span.whole)
        dropped = self._accounts.coverage(span.event).dropped
        return (
            EpochCoverage(
                epoch=span.event,
                total_samples=span.whole.size,
                uncovered=merge_ranges([*uncovered, *undone]),
                dropped=subtract_ranges(dropped, undone),
                first_cycle=self.open.first_cycle,
            ),
        )

    def arrangement(self, world_size: int) -> Arrangement | None:
        """Who holds what of the open event, and what nobody holds; None between events."""
        if self.open is None:
            return None
        held = tuple(tuple(self.holdings(Rank(rank))) for rank in range(world_size))
        if self._pool is None:
            return Arrangement(held=held)
        reserved = tuple(self._pool.residue(rank) for rank in self._pool.ranks)
        return Arrangement(held=held, reserved=reserved, returned=self._pool.reclaimed)

    def check(self, limbo: Sequence[Range] = ()) -> None:
        """Assert that each sample of the open event is in exactly one account.

        Args:
            limbo: ranges that are in nobody's account at the moment; normally none.

        Raises:
            LocalProtocolError: a sample is in two accounts or outside the span.
            AssertionError: a sample is in no account.
        """
        if self.open is None:
            return
        span = self.open.span
        self._accounts.check(span.event, span.whole)
        coverage = self._accounts.coverage(span.event)
        known = sum(
            part.size
            for parts in (coverage.trained, coverage.dropped, coverage.outstanding, limbo)
            for part in parts
        )
        if self._pool is not None:
            self._pool.check()
            known += self._pool.remaining_samples
            held = merge_ranges(
                part for rank in self._pool.ranks for part in self._pool.outstanding(rank)
            )
            assert held == coverage.outstanding, (
                f"event {span.label}: pool and accounts disagree: {held}, {coverage.outstanding}"
            )
        assert known == span.whole.size, (
            f"event {span.label}: {known} of {span.whole.size} samples are in an account"
        )
