"""What a bundle holds: the values of a commit, as the root has them.

What it is: one frozen record, the same on the way out and on the way in.
What it is not: a file (`bundle` writes, `regions` reads).
Who drives it: the launcher fills one in from a held commit, or gets one of a bundle.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flodl_core.messages.timing import TensorBlob


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedConsensus:
    """The values of a bundle.

    Attributes:
        params: the parameter region, f32; padding is 0 where it was read.
        buffers: the buffer region, likewise.
        local_buffers: integer and bool buffers of one rank, by state-dict name.
        velocity: of the outer optimizer, f32, as long as `params`; None if it has none, or none
            that is not 0.
    """

    params: NDArray[np.float32]
    buffers: NDArray[np.float32]
    local_buffers: Mapping[str, TensorBlob]
    velocity: NDArray[np.float32] | None = None
