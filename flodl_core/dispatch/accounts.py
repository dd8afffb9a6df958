"""Who holds which samples, and what became of them: the coordinator's only books.

Each rank has a first-in-first-out list of the ranges assigned to it. A rank
trains its ranges in that order, so "the oldest s samples" names them exactly.
Not a pool: it hands nothing out, it remembers. An epoch here is the event number
of `messages.control.EpochPlan`. The coordinator drives it.

    assign ─▶ outstanding ─▶ commit ─▶ trained
                          ├▶ drop ───▶ dropped
                          └▶ reclaim ▶ out of the books, until assigned again
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from flodl_core.dispatch.ranges import (
    Range,
    append_range,
    merge_ranges,
    overlap_size,
    subtract_ranges,
    total_size,
)
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Rank

_NOBODY = Rank(-1)
"""The account of what an earlier run settled."""

Entry = tuple[int, Range]
"""An epoch and positions of it."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What became of an epoch's samples; each field ascending, disjoint and joined.

    Attributes:
        trained: in a committed round.
        dropped: given up with a reason.
        outstanding: assigned and neither of the two yet.
    """

    trained: tuple[Range, ...]
    dropped: tuple[Range, ...]
    outstanding: tuple[Range, ...]


@dataclass(slots=True)
class _Settled:
    """Trained and dropped ranges of one rank in one epoch, in the order of settling."""

    trained: list[Range] = field(default_factory=list)
    dropped: list[Range] = field(default_factory=list)
    samples: int = 0


class SampleAccounts:
    """The books of one run. Ranks and epochs appear when they are first named."""

    def __init__(self) -> None:
        self._queues: dict[Rank, deque[Entry]] = {}
        self._settled: dict[int, dict[Rank, _Settled]] = {}

    def assign(self, rank: Rank, epoch: int, part: Range) -> None:
        """Append `part` to what `rank` holds; an empty range leaves no trace."""
        if part.size:
            self._queues.setdefault(rank, deque()).append((epoch, part))

    def settle_before(
        self, epoch: int, *, trained: Iterable[Range], dropped: Iterable[Range]
    ) -> None:
        """Enter what became of samples of `epoch` before these books were opened.

        No rank of this run is credited with them.
        """
        account = self._account(_NOBODY, epoch)
        for parts, into in ((trained, account.trained), (dropped, account.dropped)):
            for part in parts:
                append_range(into, part)
                account.samples += part.size

    def commit(self, rank: Rank, samples: int) -> list[Entry]:
        """Mark the oldest `samples` of `rank` as trained and return them.

        Raises:
            LocalProtocolError: the rank holds fewer; compare a peer's number with
                `outstanding_samples` before.
        """
        taken = self._take_oldest(rank, samples)
        for epoch, part in taken:
            account = self._account(rank, epoch)
            append_range(account.trained, part)
            account.samples += part.size
        return taken

    def drop(self, rank: Rank, samples: int) -> list[Entry]:
        """Mark the oldest `samples` of `rank` as dropped and return them.

        Raises:
            LocalProtocolError: the rank holds fewer.
        """
        taken = self._take_oldest(rank, samples)
        for epoch, part in taken:
            account = self._account(rank, epoch)
            append_range(account.dropped, part)
            account.samples += part.size
        return taken

    def reclaim(self, rank: Rank, *, keep_samples: int = 0) -> list[Entry]:
        """Take back what `rank` holds, except its oldest `keep_samples`.

        Args:
            rank: usually one that died, or was cut.
            keep_samples: what a pending cycle will still commit or drop.

        Returns:
            What was taken back, oldest first. It is in nobody's account until it
            is assigned again.

        Raises:
            LocalProtocolError: the rank holds fewer than `keep_samples`.
        """
        kept = self._take_oldest(rank, keep_samples)
        returned = list(self._queues.pop(rank, ()))
        if kept:
            self._queues[rank] = deque(kept)
        return returned

    def outstanding(self, rank: Rank) -> tuple[Entry, ...]:
        """Return what `rank` holds, oldest first."""
        return tuple(self._queues.get(rank, ()))

    def outstanding_samples(self, rank: Rank, epoch: int | None = None) -> int:
        """Return how many samples `rank` holds, of one epoch or of all."""
        held = self._queues.get(rank, ())
        return sum(part.size for of, part in held if epoch is None or of == epoch)

    def attributed(self, rank: Rank, epoch: int) -> int:
        """Return how many samples of `epoch` the rank has trained or seen dropped."""
        account = self._settled.get(epoch, {}).get(rank)
        return account.samples if account else 0

    def trained_samples(self, rank: Rank, epoch: int) -> int:
        """Return how many samples of `epoch` the rank has trained."""
        account = self._settled.get(epoch, {}).get(rank)
        return total_size(account.trained) if account else 0

    def coverage(self, epoch: int) -> Coverage:
        """Return what became of the samples of `epoch`."""
        accounts = self._settled.get(epoch, {}).values()
        return Coverage(
            trained=merge_ranges(part for account in accounts for part in account.trained),
            dropped=merge_ranges(part for account in accounts for part in account.dropped),
            outstanding=merge_ranges(self._outstanding_of(epoch)),
        )

    def settled_samples(self, epoch: int) -> int:
        """Return how many samples of `epoch` are trained or dropped, by any rank."""
        return sum(account.samples for account in self._settled.get(epoch, {}).values())

    def is_settled(self, epoch: int, samples: int) -> bool:
        """Return whether all `samples` of `epoch` are trained or dropped."""
        return self.settled_samples(epoch) >= samples

    def uncovered(self, epoch: int, span: Range) -> tuple[Range, ...]:
        """Return what of `span` is neither trained nor dropped, held by a rank or not."""
        coverage = self.coverage(epoch)
        return subtract_ranges([span], [*coverage.trained, *coverage.dropped])

    def forget_epoch(self, epoch: int) -> None:
        """Let go of what was settled in an epoch that is over; outstanding samples stay."""
        self._settled.pop(epoch, None)

    def check(self, epoch: int, span: Range) -> None:
        """Assert that no sample of `epoch` is in two accounts and none lies outside `span`.

        Raises:
            LocalProtocolError: one is; the text says how many.
        """
        parts = list(self._outstanding_of(epoch))
        for account in self._settled.get(epoch, {}).values():
            parts += [*account.trained, *account.dropped]
        twice, outside = overlap_size(parts), total_size(subtract_ranges(parts, [span]))
        if twice or outside:
            raise LocalProtocolError(
                f"epoch {epoch}: {twice} samples are in two accounts and {outside} lie outside "
                f"its span {span.offset} … {span.end}; both must be 0"
            )

    def _outstanding_of(self, epoch: int) -> Iterable[Range]:
        for queue in self._queues.values():
            yield from (part for of, part in queue if of == epoch)

    def _account(self, rank: Rank, epoch: int) -> _Settled:
        return self._settled.setdefault(epoch, {}).setdefault(rank, _Settled())

    def _take_oldest(self, rank: Rank, samples: int) -> list[Entry]:
        held = self.outstanding_samples(rank)
        if not 0 <= samples <= held:
            raise LocalProtocolError(
                f"rank {rank} was to settle {samples} samples but holds {held}"
            )
        queue = self._queues.get(rank)
        taken: list[Entry] = []
        while queue and samples:
            epoch, part = queue.popleft()
            head, tail = part.split(samples)
            samples -= head.size
            taken.append((epoch, head))
            if tail.size:
                queue.appendleft((epoch, tail))
        return taken
