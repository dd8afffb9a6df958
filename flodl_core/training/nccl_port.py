"""What a rank on NCCL is given besides its star: its device, and its ways out."""

from collections.abc import Callable
from dataclasses import dataclass, field

from flodl_core.ids import Rank
from flodl_core.planes.nccl.collective import Fabric
from flodl_core.reduce.outer import OuterAvg, OuterRule


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclPort:
    """What a rank on NCCL is given besides its star.

    Attributes:
        listen: has every message of the coordinator shown to a function as it arrives.
        post: sends a message to the coordinator.
        note: takes what happened to a session: an event's name and one text.
        record: told of each collective; None where nobody wants to know.
        park: told which collective the rank is in; empty when it is in none.
        in_place: whether no buffer is kept for the consensus.
        outer: what is made of an average.
        begins_stepped: whether the first average is stepped, and a velocity comes before it.
    """

    rank: Rank
    world_size: int
    fabric: Fabric
    listen: Callable[[Callable[[object], None]], None]
    post: Callable[[object], None]
    note: Callable[[str, str], None]
    record: Callable[[str, str], None] | None = None
    park: Callable[[str], None] = lambda _: None
    in_place: bool = False
    outer: OuterRule = field(default_factory=OuterAvg)
    begins_stepped: bool = False
