"""Who is in the made-up cluster: hosts, cards, and how fast each rank is.

What it is: frozen rows, made from a number of ranks and a seed.
What it is not: anything that changes while a scenario plays.
Who drives it: `demo.scenarios`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from flodl_console.demo.noise import spread
from flodl_core.units import MIB, Milliseconds

RANKS_PER_HOST: Final = 8

TORCH: Final = "2.9.0+cu128"
NCCL: Final = "2.27.5"

_GIB: Final = 1024 * MIB
_COLOURS: Final = ("red", "blue", "green", "amber", "violet", "teal", "coral", "olive")


@dataclass(frozen=True, slots=True)
class Card:
    """One kind of graphics card."""

    name: str
    ms_per_batch: Milliseconds
    memory_bytes: int


CARDS: Final = (
    Card("NVIDIA GeForce RTX 4090", 5.0, 24 * _GIB),
    Card("NVIDIA GeForce RTX 3060", 14.0, 12 * _GIB),
    Card("NVIDIA GeForce GTX 1060 6GB", 60.0, 6 * _GIB),
)

_SMALL: Final = (0, 0, 1, 2)
"""Cards of the first four ranks: two fast ones, a middling one, a slow one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRank:
    """One rank."""

    rank: int
    host: int
    """Index of its host."""
    device: str
    card: Card
    ms_per_batch: Milliseconds
    """Its usual speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoHost:
    """One host with its ranks."""

    name: str
    address: str
    ranks: tuple[DemoRank, ...]


@dataclass(frozen=True)
class Cohort:
    """All hosts, the launcher's own first; ranks are numbered through."""

    hosts: tuple[DemoHost, ...]

    @cached_property
    def ranks(self) -> tuple[DemoRank, ...]:
        """All ranks in their order."""
        return tuple(rank for host in self.hosts for rank in host.ranks)

    def where(self, rank: int) -> str:
        """Return a rank as texts name it: `rank 1 (cuda:1 on red)`."""
        row = self.ranks[rank]
        return f"rank {rank} ({row.device} on {self.hosts[row.host].name})"


def make_cohort(ranks: int, *, seed: int, fewest_hosts: int = 2) -> Cohort:
    """Return a cluster of mixed cards.

    Args:
        ranks: 0 or more.
        seed: varies the cards' speeds by a few percent.
        fewest_hosts: that share the ranks, as far as there are as many ranks.
    """
    sizes = _host_sizes(ranks, min(ranks, fewest_hosts))
    hosts = []
    first = 0
    for index, size in enumerate(sizes):
        rows = tuple(
            _make_rank(first + local, host=index, local=local, seed=seed) for local in range(size)
        )
        address = "127.0.0.1" if index == 0 else f"10.0.{index // 200}.{10 + index % 200}"
        hosts.append(DemoHost(name=host_name(index), address=address, ranks=rows))
        first += size
    return Cohort(tuple(hosts))


def host_name(index: int) -> str:
    """Return the label of a host: a colour, with a number from the ninth on."""
    colour = _COLOURS[index % len(_COLOURS)]
    return colour if index < len(_COLOURS) else f"{colour}-{index // len(_COLOURS) + 1}"


def _host_sizes(ranks: int, fewest_hosts: int) -> list[int]:
    if ranks <= fewest_hosts * RANKS_PER_HOST:
        return [(ranks + fewest_hosts - 1 - index) // fewest_hosts for index in range(fewest_hosts)]
    full, left = divmod(ranks, RANKS_PER_HOST)
    return [RANKS_PER_HOST] * full + ([left] if left else [])


def _make_rank(rank: int, *, host: int, local: int, seed: int) -> DemoRank:
    card = CARDS[_SMALL[rank] if rank < len(_SMALL) else (host + local // 4) % len(CARDS)]
    pace = 1.0 + 0.04 * spread(seed, 101, rank)
    return DemoRank(
        rank=rank,
        host=host,
        device=f"cuda:{local}",
        card=card,
        ms_per_batch=card.ms_per_batch * pace,
    )
