"""How a pass is cut: into events (`epoch_splits`), and an event into one plan a rank.

An *event* is what `EpochPlan.epoch` counts: pass = event // splits, split = event %
splits. Positions are absolute in the pass. A tail smaller than a batch is cut off
before anything is given out, and named in `EventSpan.tail`. Not a pool: the shares
are fixed here. Pure rules; the coordinator and the validation of a run use them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flodl_core.dispatch.ranges import Range
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Rank
from flodl_core.messages.control import EpochPlan

SYNC_WINDOW_BATCHES = 1


@dataclass(frozen=True, slots=True)
class EventSpan:
    """What one event trains.

    Attributes:
        event: its number, from 0.
        pass_index: which pass it is a slice of.
        split: which slice of that pass, from 0.
        splits: slices a pass has.
        whole: the batches that are given out; a multiple of the batch size.
        tail: the samples behind them, too few for a batch; dropped. May be empty.
    """

    event: int
    pass_index: int
    split: int
    splits: int
    whole: Range
    tail: Range

    @property
    def label(self) -> str:
        """The event for people, who count from 1: `4 (pass 1, split 4/4)`, or its number alone."""
        if self.splits == 1:
            return str(self.event + 1)
        return (
            f"{self.event + 1} (pass {self.pass_index + 1}, split {self.split + 1}/{self.splits})"
        )


def refuse_splits(n_samples: int, batch_size: int, splits: int) -> str | None:
    """Return why a pass cannot be cut so, with the largest number that can; None if it can.

    Args:
        n_samples: samples of the dataset.
        batch_size: samples of a batch, 1 or more.
        splits: events a pass is cut into.
    """
    if splits < 1:
        return f"a pass cannot be cut into {splits} splits; give 1 or more"
    most = n_samples // batch_size
    if most == 0:
        return (
            f"{n_samples} samples are less than one batch of {batch_size}, so an epoch "
            "would train nothing; give a smaller batch_size or more samples"
        )
    if splits > most:
        return (
            f"{splits} splits of {n_samples} samples are smaller than one batch of "
            f"{batch_size}; at most {most} splits are possible"
        )
    return None


def split_span(n_samples: int, splits: int, split: int) -> Range:
    """Return the positions of one split of a pass; the first n_samples % splits have one more."""
    base, extra = divmod(n_samples, splits)
    return Range(split * base + min(split, extra), base + (1 if split < extra else 0))


def window_cap_batches(n_samples: int, splits: int, batch_size: int) -> int:
    """Return the most batches that one window of the whole cohort may hold."""
    return n_samples // splits // batch_size


def span_event(event: int, n_samples: int, *, splits: int, batch_size: int) -> EventSpan:
    """Return what an event trains and what is left over.

    Args:
        event: event number, from 0.
        n_samples: samples of a pass.
        splits: events of a pass.
        batch_size: samples of a batch.

    Raises:
        LocalProtocolError: `refuse_splits` refuses these numbers, or event is negative.
    """
    refusal = refuse_splits(n_samples, batch_size, splits)
    if refusal is not None or event < 0:
        raise LocalProtocolError(refusal or f"event {event}; events count from 0")
    pass_index, split = divmod(event, splits)
    span = split_span(n_samples, splits, split)
    whole, tail = span.split(span.size - span.size % batch_size)
    return EventSpan(event, pass_index, split, splits, whole, tail)


def share_equally(batches: int, shares: int) -> tuple[int, ...]:
    """Return `shares` numbers that sum to `batches`; the first ones take the remainder."""
    base, extra = divmod(batches, shares)
    return tuple(base + (1 if index < extra else 0) for index in range(shares))


def share_by_ratio(batches: int, ratios: Sequence[float]) -> tuple[int, ...]:
    """Return shares in proportion: floors, and the remainder to the largest ratio.

    Args:
        batches: how many to share out, 0 or more.
        ratios: one a share; finite, 0 or more, not all 0. Of equal ones the first is
            the largest.

    Raises:
        LocalProtocolError: the ratios cannot be used.
    """
    total = sum(ratios)
    if not ratios or min(ratios) < 0 or not 0 < total < float("inf"):
        raise LocalProtocolError(f"ratios {tuple(ratios)}; expected finite numbers, not all 0")
    shares = [min(int(batches * ratio / total), batches) for ratio in ratios]
    fastest = max(range(len(ratios)), key=lambda index: ratios[index])
    shares[fastest] += batches - sum(shares)
    return tuple(shares)


def lay_out(span: Range, shares: Sequence[int], batch_size: int) -> tuple[Range, ...]:
    """Return contiguous ranges from the start of `span`, one a share; a share counts batches.

    Raises:
        LocalProtocolError: the shares need more samples than `span` has.
    """
    if sum(shares) * batch_size > span.size:
        raise LocalProtocolError(
            f"{sum(shares)} batches of {batch_size} do not fit into {span.size} samples"
        )
    laid: list[Range] = []
    rest = span
    for share in shares:
        part, rest = rest.split(share * batch_size)
        laid.append(part)
    return tuple(laid)


def plan_sync(
    span: EventSpan, ranks: Sequence[Rank], batch_size: int, *, ratios: Sequence[float] = ()
) -> dict[Rank, EpochPlan]:
    """Return the plan of each alive rank for a Sync event: whole batches, window 1.

    Args:
        span: what the event trains.
        ranks: the alive ranks, ascending; of equal parts the first ones take the remainder.
        batch_size: samples of a batch.
        ratios: parts by rank of the world; equal if empty.

    Returns:
        One plan a rank; with more ranks than batches the last ones get size 0.

    Raises:
        LocalProtocolError: there is no rank.
    """
    if not ranks:
        raise LocalProtocolError(f"event {span.label} has no alive rank to plan for")
    batches = span.whole.size // batch_size
    shares = (
        share_by_ratio(batches, [ratios[rank] for rank in ranks])
        if ratios
        else share_equally(batches, len(ranks))
    )
    parts = lay_out(span.whole, shares, batch_size)
    return {
        rank: EpochPlan(
            epoch=span.event,
            offset=part.offset,
            size=part.size,
            window_batches=SYNC_WINDOW_BATCHES,
            cohort_batches=len(ranks),
        )
        for rank, part in zip(ranks, parts, strict=True)
    }


def share_out(
    parts: Sequence[Range], ranks: Sequence[Rank], batch_size: int
) -> list[tuple[Rank, Range]]:
    """Give the ranges of a lost rank to survivors: whole batches, equally, in order.

    Args:
        parts: the ranges, oldest first. A run that is no multiple of the batch size
            ends in a smaller batch.
        ranks: the survivors, ascending; the first ones take what is left over.
        batch_size: samples of a batch.

    Returns:
        (rank, range) pairs in the order of ranks; a rank may have several, or none.

    Raises:
        LocalProtocolError: there is no survivor.
    """
    if not ranks:
        raise LocalProtocolError("ranges of a lost rank, and no survivor to take them")
    batches = [-(-part.size // batch_size) for part in parts]
    given: list[tuple[Rank, Range]] = []
    queue = [part for part in parts if part.size]
    for rank, share in zip(ranks, share_equally(sum(batches), len(ranks)), strict=True):
        wanted = share
        while wanted and queue:
            head, tail = queue.pop(0).split(wanted * batch_size)
            if tail.size:
                queue.insert(0, tail)
            wanted -= -(-head.size // batch_size)
            given.append((rank, head))
    return given
