"""Forming one bucket of the consensus: sum in order, divide once, put it where it belongs.

Only arithmetic and placement: which contributions are in, and with which mass, comes
from the root. Values that leave for the hosts are contiguous; a bucket of several
runs takes a way through kept scratch, which is free again once the hosts have taken
the buckets that the flow allows to be under way.
"""

from collections.abc import Sequence

import numpy as np

from flodl_core.planes.round_plan import (
    MAX_AHEAD,
    Gather,
    RoundPlan,
    gather,
    is_contiguous,
    scatter,
    view_of,
)
from flodl_core.planes.segment import BF16, F32
from flodl_core.reduce.buckets import bucket_values
from flodl_core.reduce.fold import Fold, Term
from flodl_core.reduce.narrow import Narrow


class BucketFormer:
    """The root's folding thread's arithmetic, with its scratch."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._scratch: dict[int, F32] = {}
        self._differences: dict[int, BF16] = {}
        self._base = Gather()
        self._narrow = Narrow()

    def base(self, plan: RoundPlan, index: int, committed: F32) -> F32 | None:
        """Return what a narrow round subtracts from local contributions to this bucket."""
        return self._base.values(committed, plan.buckets[index]) if plan.is_narrow else None

    def form(
        self,
        plan: RoundPlan,
        index: int,
        *,
        terms: Sequence[Term],
        mass: float,
        regions: tuple[F32, F32],
    ) -> F32 | BF16:
        """Form a bucket in its place.

        Args:
            plan: of the round.
            index: which bucket.
            terms: the accepted contributions, in the order of the sum.
            mass: their summed mass; 0 takes the last committed values.
            regions: the one that is formed, and the last committed one.

        Returns:
            What is sent, contiguous, unchanged for as long as hosts may be sent it: the bucket's
            values, or in a narrow round their differences from the committed ones.
        """
        if plan.is_narrow and mass > 0:
            return self._form_narrow(plan, index, terms, mass=mass, regions=regions)
        forming, committed = regions
        if not mass > 0:
            return self.take(plan, index, source=committed, target=forming)
        bucket = plan.buckets[index]
        is_direct = is_contiguous(bucket)
        out = view_of(forming, bucket) if is_direct else self._kept(index, bucket_values(bucket))
        self._fold.combine(out, terms, divisor=mass)
        if not is_direct:
            scatter(out, bucket, forming)
        return out

    def take(self, plan: RoundPlan, index: int, *, source: F32, target: F32) -> F32:
        """Put a bucket of another region in its place; return it as `form` does."""
        bucket = plan.buckets[index]
        is_direct = is_contiguous(bucket)
        out = view_of(target, bucket) if is_direct else self._kept(index, bucket_values(bucket))
        gather(source, bucket, out)
        if not is_direct:
            scatter(out, bucket, target)
        return out

    def _form_narrow(
        self,
        plan: RoundPlan,
        index: int,
        terms: Sequence[Term],
        *,
        mass: float,
        regions: tuple[F32, F32],
    ) -> BF16:
        """Round the difference once, and form what everybody makes of it."""
        forming, committed = regions
        bucket = plan.buckets[index]
        size, place = bucket_values(bucket), index % (MAX_AHEAD + 1)
        kept = self._differences.get(place)
        if kept is None or kept.size < size:
            kept = self._differences[place] = np.empty(size, np.uint16)
        self._fold.combine_narrow(kept[:size], terms, divisor=mass)
        at = 0
        for offset, length in bucket:
            run = slice(offset, offset + length)
            self._narrow.add_into(forming[run], committed[run], kept[at : at + length])
            at += length
        return kept[:size]

    def _kept(self, index: int, size: int) -> F32:
        place = index % (MAX_AHEAD + 1)
        kept = self._scratch.get(place)
        if kept is None or kept.size < size:
            kept = self._scratch[place] = np.empty(size, np.float32)
        return kept[:size]
