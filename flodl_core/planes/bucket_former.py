"""Forming one bucket of the consensus: sum in order, divide once, step, put it where it belongs.

Only arithmetic and placement: which contributions are in, and with which mass, comes
from the root. Values that leave for the hosts are contiguous; a bucket of several
runs takes a way through kept scratch, which is free again once the hosts have taken
the buckets that the flow allows to be under way.
"""

from collections.abc import Sequence

import numpy as np

from flodl_core.planes.consensus import Regions
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
from flodl_core.reduce.buckets import Bucket, bucket_values
from flodl_core.reduce.fold import Fold, Term
from flodl_core.reduce.narrow import Narrow
from flodl_core.reduce.outer import OuterAvg, OuterRule, OuterStep, all_finite


class BucketFormer:
    """The root's folding thread's arithmetic, with its scratch.

    Args:
        outer: what is made of an average.
    """

    def __init__(self, outer: OuterRule) -> None:
        self._outer = None if isinstance(outer, OuterAvg) else OuterStep(outer)
        self._unstepped = 0
        self._fold = Fold()
        self._scratch: dict[int, F32] = {}
        self._differences: dict[int, BF16] = {}
        self._wide: F32 | None = None
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
        regions: Regions,
    ) -> F32 | BF16:
        """Form a bucket in its place, with its velocity where the round is stepped.

        A step whose result is not finite is taken back: the average itself stands, and the
        velocity of the bucket begins again at 0.

        Args:
            plan: of the round.
            index: which bucket.
            terms: the accepted contributions, in the order of the sum.
            mass: their summed mass; 0 takes the last committed values, and velocity.
            regions: what is formed, and from what.

        Returns:
            What is sent, contiguous, unchanged for as long as hosts may be sent it: the bucket's
            values, or in a narrow round their differences from the committed ones.
        """
        bucket = plan.buckets[index]
        if not mass > 0:
            _keep_velocity(regions, bucket)
            return self.take(plan, index, source=regions.committed, target=regions.forming)
        if plan.is_narrow:
            return self._form_narrow(plan, index, terms, mass=mass, regions=regions)
        is_direct = is_contiguous(bucket)
        size = bucket_values(bucket)
        out = view_of(regions.forming, bucket) if is_direct else self._kept(index, size)
        self._fold.combine(out, terms, divisor=mass)
        if not self._step(out, bucket, regions, is_difference=False):
            self._fold.combine(out, terms, divisor=mass)
        if not is_direct:
            scatter(out, bucket, regions.forming)
        return out

    def take_unstepped(self) -> int:
        """Return how many buckets took the plain average for a step since the last call."""
        count, self._unstepped = self._unstepped, 0
        return count

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
        regions: Regions,
    ) -> BF16:
        """Round the difference once, after the step, and form what everybody makes of it."""
        bucket = plan.buckets[index]
        size, place = bucket_values(bucket), index % (MAX_AHEAD + 1)
        kept = self._differences.get(place)
        if kept is None or kept.size < size:
            kept = self._differences[place] = np.empty(size, np.uint16)
        rounded = kept[:size]
        if regions.before is None:
            self._fold.combine_narrow(rounded, terms, divisor=mass)
            self._add(rounded, bucket, regions)
            return rounded
        wide = self._scratch_for(size)
        self._fold.combine(wide, terms, divisor=mass)
        is_stepped = self._step(wide, bucket, regions, is_difference=True)
        if is_stepped:
            self._narrow.round_into(rounded, wide)
            self._add(rounded, bucket, regions)
            is_stepped = self._is_finite(bucket, regions)
        if not is_stepped:
            self._fold.combine_narrow(rounded, terms, divisor=mass)
            self._add(rounded, bucket, regions)
        return rounded

    def _step(self, out: F32, bucket: Bucket, regions: Regions, *, is_difference: bool) -> bool:
        """Step an average in place, if the round is stepped; return False if it came to nothing."""
        if self._outer is None or regions.before is None or regions.after is None:
            return True
        at = 0
        for offset, length in bucket:
            run, part = slice(offset, offset + length), out[at : at + length]
            before, after = regions.before[run], regions.after[run]
            if is_difference:
                is_finite = self._outer.step_difference(part, before=before, after=after)
            else:
                previous = regions.committed[run]
                is_finite = self._outer.step(part, previous=previous, before=before, after=after)
            if not is_finite:
                self._reset_velocity(bucket, regions)
                return False
            at += length
        return True

    def _is_finite(self, bucket: Bucket, regions: Regions) -> bool:
        """Return whether what a bucket came to is finite; else its velocity begins again."""
        with np.errstate(all="ignore"):
            for offset, length in bucket:
                if not all_finite(regions.forming[offset : offset + length]):
                    self._reset_velocity(bucket, regions)
                    return False
        return True

    def _reset_velocity(self, bucket: Bucket, regions: Regions) -> None:
        assert regions.after is not None, "only a round that is stepped has a velocity"
        for offset, length in bucket:
            regions.after[offset : offset + length] = 0.0
        self._unstepped += 1

    def _add(self, rounded: BF16, bucket: Bucket, regions: Regions) -> None:
        """Form committed values + difference in the bucket's place."""
        at = 0
        with np.errstate(all="ignore"):
            for offset, length in bucket:
                run = slice(offset, offset + length)
                difference = rounded[at : at + length]
                self._narrow.add_into(regions.forming[run], regions.committed[run], difference)
                at += length

    def _scratch_for(self, size: int) -> F32:
        if self._wide is None or self._wide.size < size:
            self._wide = np.empty(size, np.float32)
        return self._wide[:size]

    def _kept(self, index: int, size: int) -> F32:
        place = index % (MAX_AHEAD + 1)
        kept = self._scratch.get(place)
        if kept is None or kept.size < size:
            kept = self._scratch[place] = np.empty(size, np.float32)
        return kept[:size]


def _keep_velocity(regions: Regions, bucket: Bucket) -> None:
    """Leave the velocity of a bucket that nobody contributed to as it was."""
    if regions.before is None or regions.after is None:
        return
    for offset, length in bucket:
        run = slice(offset, offset + length)
        np.copyto(regions.after[run], regions.before[run])
