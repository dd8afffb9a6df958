"""The elastic move: a rank that trained on meets a consensus of what it was before.

    p ← (1 − α)·s + α·c + (p − s)

with s the rank's snapshot, c the consensus that it is in, and p − s what the rank trained
since. Without work since the snapshot, p = s, this is (1 − α)·p + α·c, the elastic
averaging of Zhang, Choromanska and LeCun (2015); with α = 1 it is the consensus, moved by
the rank's own steps. Arithmetic on one rank's memory, in cache-sized pieces; it decides
nothing.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from flodl_core.errors import LocalProtocolError
from flodl_core.reduce.buckets import Run
from flodl_core.reduce.narrow import F32

DEFAULT_ALPHA: Final = 0.5
"""How far a rank moves where nobody says otherwise."""

_PIECE_VALUES: Final = 32 * 1024


def blend(own: F32, snapshot: F32, consensus: F32, spans: Sequence[Run], *, alpha: float) -> None:
    """Move `own` towards the consensus by α, keeping what was trained since the snapshot.

    Ranks with the same values, snapshot and consensus end with the same bits.

    Args:
        own: the rank's values now, f32; changed over the spans.
        snapshot: what they were when the consensus was asked for, f32, as long.
        consensus: f32, as long.
        spans: the runs that took part in the round.
        alpha: above 0 and at most 1.

    Raises:
        LocalProtocolError: α is outside, or the lengths differ.
    """
    if not 0 < alpha <= 1:
        raise LocalProtocolError(f"α = {alpha}; expected above 0 and at most 1")
    if not own.size == snapshot.size == consensus.size:
        raise LocalProtocolError(
            f"{own.size} values, a snapshot of {snapshot.size} and a consensus of "
            f"{consensus.size}; expected as many of each"
        )
    stay, move = np.float32(1.0 - alpha), np.float32(alpha)
    meeting = np.empty(_PIECE_VALUES, np.float32)
    part = np.empty(_PIECE_VALUES, np.float32)
    with np.errstate(all="ignore"):
        for offset, length in spans:
            for start in range(offset, offset + length, _PIECE_VALUES):
                piece = slice(start, min(start + _PIECE_VALUES, offset + length))
                values, before = own[piece], snapshot[piece]
                target, rest = meeting[: values.size], part[: values.size]
                np.multiply(before, stay, out=rest)
                np.multiply(consensus[piece], move, out=target)
                np.add(target, rest, out=target)
                np.subtract(values, before, out=values)
                np.add(values, target, out=values)
