"""The control vector: what the count round sums, and how it is read back.

```
[ n of each rank | samples of each rank | declared of each rank | unfrozen flag of each segment ]
```

f64 throughout, so counts are exact up to 2**53. Each rank fills its own three places
and adds its flags; the sum over the tree is therefore both a gather and an OR.
"""

from collections.abc import Iterable, Sequence

from flodl_core.ids import Rank
from flodl_core.messages.data import RankTally
from flodl_core.planes.segment import F64, U8
from flodl_core.planes.slot import SlotHeader


def add_rank(vector: F64, world_size: int, rank: Rank, *, header: SlotHeader, unfrozen: U8) -> None:
    """Add one rank's snapshot to a host's control vector."""
    vector[rank] += header.n
    vector[world_size + rank] += header.samples
    vector[2 * world_size + rank] += float(header.declared)
    vector[3 * world_size :] += unfrozen != 0


def tallies_of(vector: F64, world_size: int, ranks: Iterable[Rank]) -> tuple[RankTally, ...]:
    """Return what a control sum says of `ranks`, in their order."""
    return tuple(
        RankTally(
            rank=rank,
            n=int(vector[rank]),
            samples=int(vector[world_size + rank]),
            declared=bool(vector[2 * world_size + rank] > 0),
        )
        for rank in ranks
    )


def flags_of(vector: F64, world_size: int) -> F64:
    """Return how many ranks have each parameter segment unfrozen."""
    return vector[3 * world_size :]


def merge_ranks(groups: Sequence[Sequence[Rank]]) -> tuple[Rank, ...]:
    """Return the ranks of several hosts as one ascending tuple."""
    return tuple(sorted(rank for group in groups for rank in group))
