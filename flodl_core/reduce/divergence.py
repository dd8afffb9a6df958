"""How far a rank was from the consensus: the triple that guards and console read.

Pure arithmetic on two snapshots of one rank, taken between the params and the
buffers round. Accumulated in f64 in cache-sized pieces; neither array is changed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from flodl_core.errors import LocalProtocolError
from flodl_core.reduce.buckets import Run
from flodl_core.reduce.fold import F32

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
    if pre.size != post.size:
        raise LocalProtocolError(
            f"the snapshot has {pre.size} values and the consensus {post.size}, expected as many"
        )
    if not spans:
        return Divergence(divergence=0.0, post_norm=None, pre_norm=None)
    pre_sum, post_sum, apart_sum = _sums(pre, post, spans)
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


def _sums(pre: F32, post: F32, spans: Sequence[Run]) -> tuple[float, float, float]:
    """Σ pre², Σ post² and Σ (pre − post)², in f64."""
    pre_sum = post_sum = apart_sum = 0.0
    wide_pre = np.empty(_PIECE_VALUES, np.float64)
    wide_post = np.empty(_PIECE_VALUES, np.float64)
    with np.errstate(all="ignore"):
        for offset, length in spans:
            for start in range(offset, offset + length, _PIECE_VALUES):
                size = min(_PIECE_VALUES, offset + length - start)
                a, b = wide_pre[:size], wide_post[:size]
                np.copyto(a, pre[start : start + size])
                np.copyto(b, post[start : start + size])
                pre_sum += float(np.einsum("i,i->", a, a))
                post_sum += float(np.einsum("i,i->", b, b))
                np.subtract(a, b, out=a)
                apart_sum += float(np.einsum("i,i->", a, a))
    return pre_sum, post_sum, apart_sum


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
