"""The samples of one event, handed out chunk by chunk, each exactly once.

Each rank has a *span* reserved for it and takes from its front; who runs out steals
the tail of the longest one. Ranges that come back (a failed send, a lost rank) are
handed out first. Not the books of what was trained in a committed round: those are
`dispatch.accounts`. The coordinator drives one pool an event in Cadence and Async.

    residue of a span ──take──▶ outstanding ──complete──▶ completed
       ▲      reclaimed ──take──▶   │  │
       └─────────── rollback ◀──────┘  └──▶ forfeit, give back, rollback ──▶ reclaimed
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flodl_core.dispatch.epoch_plan import lay_out
from flodl_core.dispatch.ranges import Range, merge_ranges, take_samples, total_size
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Rank


@dataclass(slots=True)
class _Share:
    """One rank's reserved span and what it holds: the residue is cursor … end."""

    cursor: int
    end: int
    held: list[Range]
    completed_samples: int = 0

    @property
    def residue(self) -> Range:
        return Range(self.cursor, self.end - self.cursor)


def span_batches(batches: int, counts: Sequence[int]) -> tuple[int, ...]:
    """Return how many batches of an event each rank's span reserves.

    Args:
        batches: whole batches of the event.
        counts: batches a window of each rank, or all 1 for equal spans; 0 reserves nothing.

    Returns:
        Floors in proportion; what is left goes one by one to the ranks with a count,
        round-robin from rank 0.

    Raises:
        LocalProtocolError: a count is negative or all are 0.
    """
    total = sum(counts)
    if total < 1 or min(counts) < 0:
        raise LocalProtocolError(f"counts {tuple(counts)}; expected 0 or more, and one above 0")
    shares = [batches * count // total for count in counts]
    takers = [index for index, count in enumerate(counts) if count]
    for turn in range(batches - sum(shares)):
        shares[takers[turn % len(takers)]] += 1
    return tuple(shares)


class ChunkPool:
    """The pool of one event.

    Args:
        spans: the span reserved for each rank, by rank; disjoint, empty ones allowed.
        reclaimed: ranges outside the spans that anybody may take, in that order.

    Raises:
        LocalProtocolError: no span, or two ranges overlap.
    """

    def __init__(self, spans: Sequence[Range], *, reclaimed: Iterable[Range] = ()) -> None:
        self._shares = [_Share(span.offset, span.end, []) for span in spans]
        self._reclaimed = [part for part in reclaimed if part.size]
        everything = [*spans, *self._reclaimed]
        self.total_samples = total_size(everything)
        if not spans or total_size(merge_ranges(everything)) != self.total_samples:
            raise LocalProtocolError(f"a pool over {everything}; expected disjoint ranges, 1 span")
        self._dispatched_samples = 0

    @classmethod
    def from_counts(cls, span: Range, batch_size: int, counts: Sequence[int]) -> "ChunkPool":
        """Return a pool over the whole batches of `span`, reserved by `span_batches`."""
        shares = span_batches(span.size // batch_size, counts)
        return cls(lay_out(span, shares, batch_size))

    @classmethod
    def bare(cls, span: Range, ranks: int) -> "ChunkPool":
        """Return a pool over every sample of `span`, equal spans, the remainder to the last."""
        parts: list[Range] = []
        rest = span
        for left in range(ranks, 0, -1):
            part, rest = rest.split(span.size // ranks if left > 1 else rest.size)
            parts.append(part)
        return cls(parts)

    @classmethod
    def from_holes(cls, holes: Iterable[Range], ranks: int) -> "ChunkPool":
        """Return a pool that serves only these holes of a coverage, ascending, to anybody."""
        return cls([Range(0, 0)] * ranks, reclaimed=merge_ranges(holes))

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """The ranks that have a span, an empty one perhaps."""
        return tuple(Rank(index) for index in range(len(self._shares)))

    @property
    def reclaimed(self) -> tuple[Range, ...]:
        """What is handed out before any span, in that order."""
        return tuple(self._reclaimed)

    @property
    def remaining_samples(self) -> int:
        """Samples that nobody holds and nobody has completed."""
        residues = sum(share.end - share.cursor for share in self._shares)
        return residues + total_size(self._reclaimed)

    @property
    def dispatched_samples(self) -> int:
        """Samples handed out and not returned, completed ones included."""
        return self._dispatched_samples

    @property
    def completed_samples(self) -> int:
        """Samples completed by all ranks; at most those dispatched."""
        return sum(share.completed_samples for share in self._shares)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to hand out and all that was handed out is completed."""
        return not self.remaining_samples and self.completed_samples >= self.dispatched_samples

    def residue(self, rank: Rank) -> Range:
        """Return what is left of the rank's own span."""
        return self._share(rank).residue

    def outstanding(self, rank: Rank) -> tuple[Range, ...]:
        """Return what the rank holds, oldest first."""
        return tuple(self._share(rank).held)

    def take(self, rank: Rank, samples: int) -> Range:
        """Hand out at most `samples` to `rank`.

        Returns:
            One range, never two joined, so it may be shorter than asked though more is
            left. Empty, at the rank's cursor, if nothing is left or asked.
        """
        share = self._share(rank)
        part = self._draw(share, samples) if samples > 0 else Range(share.cursor, 0)
        if part.size:
            share.held.append(part)
            self._dispatched_samples += part.size
        return part

    def rollback(self, rank: Rank, part: Range) -> bool:
        """Undo the newest take of `rank`, which did not reach it.

        Returns:
            Whether `part` was that take; if not, nothing changed.
        """
        share = self._share(rank)
        if not share.held or share.held[-1] != part:
            return False
        share.held.pop()
        self._dispatched_samples -= part.size
        if part.end == share.cursor:
            share.cursor = part.offset
        else:
            self._reclaimed.insert(0, part)
        return True

    def complete(self, rank: Rank, samples: int) -> list[Range]:
        """Mark the oldest `samples` that `rank` holds as completed and return them.

        More than it holds completes all that it holds.
        """
        share = self._share(rank)
        finished, share.held = take_samples(share.held, samples)
        share.completed_samples += total_size(finished)
        return finished

    def forfeit(self, rank: Rank) -> list[Range]:
        """Take back all that `rank` holds, oldest first; it is handed out again first."""
        share = self._share(rank)
        returned, share.held = share.held, []
        self._dispatched_samples -= total_size(returned)
        self._reclaimed += returned
        return returned

    def give_back(self, rank: Rank, *, keep_samples: int = 0) -> list[Range]:
        """Take back what `rank` holds, except its oldest `keep_samples`.

        Returns:
            What came back, oldest first; it is handed out before anything else.
        """
        share = self._share(rank)
        share.held, returned = take_samples(share.held, keep_samples)
        self._dispatched_samples -= total_size(returned)
        self._reclaimed[:0] = returned
        return returned

    def uncovered(self) -> tuple[Range, ...]:
        """Return what is not completed: residues, reclaimed and outstanding, merged."""
        parts = [*self._reclaimed]
        for share in self._shares:
            parts += [share.residue, *share.held]
        return merge_ranges(parts)

    def check(self) -> None:
        """Assert that every sample is in exactly one place.

        Raises:
            LocalProtocolError: one is in none or in two.
        """
        held = sum(total_size(share.held) for share in self._shares)
        counted = self.remaining_samples + held + self.completed_samples
        apart = total_size(self.uncovered()) == self.remaining_samples + held
        dispatched = self.dispatched_samples == held + self.completed_samples
        if counted != self.total_samples or not apart or not dispatched:
            raise LocalProtocolError(
                f"a pool of {self.total_samples} samples accounts for {counted} "
                f"(remaining {self.remaining_samples}, held {held}, completed "
                f"{self.completed_samples}, dispatched {self.dispatched_samples})"
            )

    def _share(self, rank: Rank) -> _Share:
        if not 0 <= rank < len(self._shares):
            raise LocalProtocolError(f"rank {rank} in a pool of {len(self._shares)} ranks")
        return self._shares[rank]

    def _draw(self, share: _Share, samples: int) -> Range:
        if self._reclaimed:
            part, rest = self._reclaimed[0].split(samples)
            self._reclaimed[:1] = [rest] if rest.size else []
            return part
        if share.cursor < share.end:
            part, _ = share.residue.split(samples)
            share.cursor = part.end
            return part
        longest = max(reversed(self._shares), key=lambda other: other.residue.size)
        size = min(samples, longest.residue.size)
        if size == 0:
            return Range(share.cursor, 0)
        longest.end -= size
        return Range(longest.end, size)
