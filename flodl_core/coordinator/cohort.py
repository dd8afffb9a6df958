"""One record a rank, and the set of them.

What it is: everything the coordinator knows of a rank that is not in the sample
accounts: life, two signals (it answers, its work progresses), ledger, measures.
What it is not: a rule; parts read and write the records.
Who drives it: every part of the coordinator.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from flodl_core.coordinator.ledger import StepLedger
from flodl_core.ids import HostName, Rank, RankPhase
from flodl_core.messages.job import Envelope
from flodl_core.messages.timing import ResourceSample
from flodl_core.units import Milliseconds, Seconds

_SMOOTHING = 0.2


class RankLife(StrEnum):
    """Whether a rank counts."""

    EXPECTED = "expected"
    """It has not said Hello."""
    ALIVE = "alive"
    LEAVING = "leaving"
    """It was told to go while the run goes on; it is waited for by nobody."""
    EXITED = "exited"
    """It said Exiting and is no loss."""
    DEAD = "dead"


@dataclass(slots=True)
class RankRecord:
    """What is known of one rank; instants are the coordinator's own."""

    rank: Rank
    host: HostName
    device: str
    life: RankLife = RankLife.EXPECTED
    phase: RankPhase = RankPhase.SPAWNING
    phase_at: Seconds | None = None
    """Since when it is in that phase; None before it said so."""
    activity: str = ""
    """What in that phase, such as the collective that it waits in."""
    heard_at: Seconds | None = None
    """Any frame."""
    progress_at: Seconds | None = None
    """The last batch, or the moment since which it could have begun one."""
    cause: str = ""
    """Why it is dead or has exited."""
    told_dead: bool = False
    """It came back after its death and was told."""
    planned_batches: int = 0
    """Batches of the window under way, as dealt; 0 for who has none."""
    throttled: bool = False
    """It was told to start no other batch before the next average."""
    spaced_from: Seconds | None = None
    """When the last batch was done that it told of, or its release, whichever is later."""
    ledger: StepLedger = field(default_factory=StepLedger)
    batches: int = 0
    mean_batch_ms: Milliseconds | None = None
    loss: float | None = None
    divergence: float | None = None
    lr: float | None = None
    weight: float | None = None
    trained_samples: int = 0
    dropped_samples: int = 0
    declared_in_a_row: int = 0
    cpu_s: Seconds | None = None
    """CPU time of its process, as last reported."""
    burned_at: Seconds | None = None
    """When that time was last seen to grow; None once the process is stopped."""
    resources: ResourceSample | None = None

    @property
    def alive(self) -> bool:
        """Whether it takes part."""
        return self.life is RankLife.ALIVE

    @property
    def gone(self) -> bool:
        """Whether it has exited or is dead."""
        return self.life in (RankLife.EXITED, RankLife.DEAD)

    @property
    def where(self) -> str:
        """The rank in words: number, host and device."""
        return f"rank {self.rank} ({self.device} on {self.host})"

    def enter(self, phase: RankPhase, since: Seconds) -> None:
        """Note which phase it is in, and since when."""
        self.phase, self.phase_at = phase, since

    def measure_batch(self, batch_ms: Milliseconds) -> None:
        """Fold the time of one batch into the smoothed mean."""
        mean = self.mean_batch_ms
        self.mean_batch_ms = batch_ms if mean is None else mean + _SMOOTHING * (batch_ms - mean)


class Cohort:
    """The records of all ranks of the world, in rank order."""

    def __init__(self, envelope: Envelope) -> None:
        self._records = {
            rank: RankRecord(rank=rank, host=host.host, device=device)
            for host in envelope.hosts
            for rank, device in zip(host.ranks, host.devices, strict=True)
        }
        self._records = dict(sorted(self._records.items()))
        self._alive: tuple[RankRecord, ...] | None = None
        self._alive_ranks: tuple[Rank, ...] | None = None

    def __iter__(self) -> Iterator[RankRecord]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, rank: Rank) -> RankRecord:
        return self._records[rank]

    def find(self, rank: Rank) -> RankRecord | None:
        """The record of that rank, or None if the world has no such rank."""
        return self._records.get(rank)

    def set_life(self, record: RankRecord, life: RankLife) -> None:
        """Change whether a rank counts."""
        record.life = life
        self._alive = self._alive_ranks = None

    @property
    def alive(self) -> tuple[RankRecord, ...]:
        """Records of the ranks that take part, ascending."""
        if self._alive is None:
            self._alive = tuple(record for record in self if record.alive)
        return self._alive

    @property
    def alive_ranks(self) -> tuple[Rank, ...]:
        """Numbers of the ranks that take part, ascending."""
        if self._alive_ranks is None:
            self._alive_ranks = tuple(record.rank for record in self.alive)
        return self._alive_ranks

    @property
    def lost(self) -> int:
        """How many ranks are dead."""
        return sum(record.life is RankLife.DEAD for record in self)
