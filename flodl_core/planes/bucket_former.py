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
    RoundPlan,
    gather,
    is_contiguous,
    scatter,
    view_of,
)
from flodl_core.planes.segment import F32
from flodl_core.reduce.buckets import bucket_values
from flodl_core.reduce.fold import Fold, Term


class BucketFormer:
    """The root's folding thread's arithmetic, with its scratch."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._scratch: dict[int, F32] = {}

    def form(
        self,
        plan: RoundPlan,
        index: int,
        *,
        terms: Sequence[Term],
        mass: float,
        regions: tuple[F32, F32],
    ) -> F32:
        """Form a bucket in its place.

        Args:
            plan: of the round.
            index: which bucket.
            terms: the accepted contributions, in the order of the sum.
            mass: their summed mass; 0 takes the last committed values.
            regions: the one that is formed, and the last committed one.

        Returns:
            The bucket's values, contiguous, unchanged for as long as hosts may be sent them.
        """
        forming, committed = regions
        bucket = plan.buckets[index]
        is_direct = is_contiguous(bucket)
        out = view_of(forming, bucket) if is_direct else self._kept(index, bucket_values(bucket))
        if mass > 0:
            self._fold.combine(out, terms, divisor=mass)
        else:
            gather(committed, bucket, out)
        if not is_direct:
            scatter(out, bucket, forming)
        return out

    def _kept(self, index: int, size: int) -> F32:
        place = index % (MAX_AHEAD + 1)
        kept = self._scratch.get(place)
        if kept is None or kept.size < size:
            kept = self._scratch[place] = np.empty(size, np.float32)
        return kept[:size]
