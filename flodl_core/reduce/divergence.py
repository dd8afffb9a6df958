"""How far a rank was from the consensus: the triple that guards and console read.

Arithmetic on two snapshots of one rank, in cache-sized pieces. The comparison may
overwrite what it compares, because adopting the consensus reads the same memory: one
pass instead of two.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from flodl_core.errors import LocalProtocolError
from flodl_core.reduce.buckets import Run
from flodl_core.reduce.narrow import F32
from flodl_core.reduce.norms import sum_of_squares

_PIECE_VALUES: Final = 32 * 1024
_SMALLEST_NORM: Final = 1e-10
"""Below it a consensus counts as zero and nothing diverges from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """‖pre − post‖ / ‖post‖ and the two norms, each finite or absent."""

    divergence: float | None
    """0 where ‖post‖ is at most 1e-10; absent where a value is not finite."""
    post_norm: float | None
    """Absent where there are no values or one is not finite."""
    pre_norm: float | None


def divergence_triple(pre: F32, post: F32, spans: Sequence[Run]) -> Divergence:
    """Compare a rank's snapshot with the consensus over the active spans.

    Args:
        pre: the snapshot's parameter region, f32.
        post: the consensus' parameter region, f32, of the same length.
        spans: the runs that took part in the round.

    Raises:
        LocalProtocolError: the regions differ in length.
    """
    return _triple_of(_Sums(pre, post, spans).run(overwrite=False), spans)


def adopt_and_compare(
    pre: F32, post: F32, spans: Sequence[Run], *, pre_norm: float | None = None
) -> Divergence:
    """Compare as `divergence_triple` does, and overwrite `pre` with `post` over the spans.

    Args:
        pre: the snapshot's parameter region, f32; on return it holds the consensus.
        post: the consensus' parameter region, f32, of the same length.
        spans: the runs that took part in the round.
        pre_norm: norm of the snapshot over the spans, where it is known already.

    Raises:
        LocalProtocolError: the regions differ in length.
    """
    sums = _Sums(pre, post, spans, pre_square=None if pre_norm is None else pre_norm**2)
    return _triple_of(sums.run(overwrite=True), spans)


def _triple_of(sums: tuple[float, float, float], spans: Sequence[Run]) -> Divergence:
    return triple_of_sums(*sums, is_empty=not spans)


def triple_of_sums(
    pre_sum: float, post_sum: float, apart_sum: float, *, is_empty: bool
) -> Divergence:
    """Return the triple of Σ pre², Σ post² and Σ (pre − post)², whoever summed them.

    Args:
        pre_sum: of the snapshot, ≥ 0 or not finite.
        post_sum: of the consensus, likewise.
        apart_sum: of their difference, likewise.
        is_empty: whether no value was compared.
    """
    if is_empty:
        return Divergence(divergence=0.0, post_norm=None, pre_norm=None)
    post_norm = _finite(math.sqrt(post_sum))
    if post_norm is not None and post_norm <= _SMALLEST_NORM:
        divergence: float | None = 0.0
    elif post_norm is None:
        divergence = None
    else:
        divergence = _finite(math.sqrt(apart_sum) / post_norm)
    return Divergence(
        divergence=divergence, post_norm=post_norm, pre_norm=_finite(math.sqrt(pre_sum))
    )


class _Sums:
    """Σ pre², Σ post² and Σ (pre − post)² over spans."""

    def __init__(
        self, pre: F32, post: F32, spans: Sequence[Run], *, pre_square: float | None = None
    ) -> None:
        if pre.size != post.size:
            raise LocalProtocolError(
                f"the snapshot has {pre.size} values and the consensus {post.size}, expected as "
                "many"
            )
        self._pre, self._post, self._spans = pre, post, spans
        self._pre_square = pre_square
        self._apart = np.empty(_PIECE_VALUES, np.float32)

    def run(self, *, overwrite: bool) -> tuple[float, float, float]:
        """Sum; with `overwrite`, leave the consensus where the snapshot was."""
        pre_sum = post_sum = apart_sum = 0.0
        with np.errstate(all="ignore"):
            for offset, length in self._spans:
                for start in range(offset, offset + length, _PIECE_VALUES):
                    end = min(start + _PIECE_VALUES, offset + length)
                    pre, post = self._pre[start:end], self._post[start:end]
                    if self._pre_square is None:
                        pre_sum += sum_of_squares(pre)
                    post_sum += sum_of_squares(post)
                    apart_sum += self._apart_of(pre, post)
                    if overwrite:
                        np.copyto(pre, post)
        if self._pre_square is not None:
            pre_sum = self._pre_square
        return pre_sum, post_sum, apart_sum

    def _apart_of(self, pre: F32, post: F32) -> float:
        apart = self._apart[: pre.size]
        np.subtract(pre, post, out=apart)
        total = sum_of_squares(apart)
        if math.isfinite(total) or not (np.isfinite(pre).all() and np.isfinite(post).all()):
            return total
        wide = pre.astype(np.float64) - post
        return float(np.dot(wide, wide))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
