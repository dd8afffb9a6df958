"""Data channel: tensors in buckets, and the end of each round.

Between hosts a BucketFrame is the header of a sealed bucket: its values follow
it. Inside a host the values lie in shared memory and only PlaneHello,
StagingOffer, Ready and RoundEnd travel.
"""

from flodl_core.ids import Cycle, Rank, Round, RoundOutcome
from flodl_core.messages.registry import message, part


@message(128)
class BucketFrame:
    """One bucket of one round: Σ mass·x of the ranks named, or the consensus on its way down."""

    cycle: Cycle
    round: Round
    index: int
    count: int
    """Buckets of this round."""
    mass: float
    """Summed mass of the contributions in it; 0 declares that no values follow."""
    ranks: tuple[Rank, ...]
    """Whose contributions are in it."""
    nbytes: int
    """Bytes of values that follow."""
    dtype: str
    """f64 for control rounds; f32 for values; bf16 for differences from the last commit."""


@message(129)
class RoundEnd:
    """Root → everybody: nothing changed before this; now it does."""

    cycle: Cycle
    round: Round
    outcome: RoundOutcome
    ranks_accepted: tuple[Rank, ...]
    mass: float


@message(130)
class PlaneHello:
    """Rank → relay or root, with its slot's descriptor."""

    rank: Rank
    slot_bytes: int


@message(131)
class StagingOffer:
    """Relay or root → rank, with the descriptor of the host's consensus segment (read-only)."""

    nbytes: int


@message(132)
class Ready:
    """Rank → relay or root: the slot holds this cycle's snapshot; every round is served from it."""

    rank: Rank
    cycle: Cycle


@part
class RankTally:
    """What the control round says of one rank."""

    rank: Rank
    n: int
    samples: int
    declared: bool
    """It declared its values non-finite."""
