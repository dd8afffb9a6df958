"""What happens in a scenario, as data: who joins when, what goes wrong when.

What it is: frozen rows with instants in seconds since the run began.
What it is not: the numbers that follow from it; `demo.schedule` works those out.
Who drives it: `demo.scenarios` writes scripts, the other modules read them.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from flodl_console.demo.cohort import Cohort
from flodl_core.ids import StartMode
from flodl_core.units import Seconds

BATCH_SAMPLES: Final = 32
HEARTBEAT_CEILING_S: Final = 30.0
STALL_CEILING_S: Final = 300.0
STOP_GRACE_S: Final = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A rank takes `factor` times as long for a batch."""

    rank: int
    from_s: Seconds
    until_s: Seconds
    factor: float
    noticed_after_s: Seconds = 10.0
    """Until the counts follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A rank's process ends, seen at once."""

    rank: int
    at_s: Seconds
    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A host is not heard any more, and given up at the ceiling of the heartbeat."""

    host: int
    from_s: Seconds

    @property
    def until_s(self) -> Seconds:
        """When it is given up."""
        return self.from_s + HEARTBEAT_CEILING_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A rank answers but never acknowledges the averaging under way."""

    rank: int
    from_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """A rank's values are not finite in one cycle."""

    rank: int
    at_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A checkpoint is written, or not."""

    from_s: Seconds
    until_s: Seconds
    error: str | None = None
    who: str | None = None
    """Who asked for it; None if it was due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrest:
    """The ranks drift apart, so that the guard speaks against longer windows."""

    from_s: Seconds
    until_s: Seconds


Fault: TypeAlias = Slow | Loss | Silence | Stall | NonFinite | Save | Unrest


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A host that was turned away."""

    at_s: Seconds
    host: str
    address: str
    reason: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """Somebody asked to stop and save."""

    at_s: Seconds
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the run ends."""

    at_s: Seconds
    exit_code: int
    reason: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Script:
    """One scenario."""

    name: str
    seed: int
    cohort: Cohort
    length_s: Seconds
    begin_s: Seconds
    """Where a playback starts."""
    showcase_s: Seconds
    """An instant that shows what the scenario is about."""
    start_mode: StartMode = StartMode.AUTO
    min_rank_start: int
    target_ranks: int | None
    window_s: Seconds = 300.0
    cap_s: Seconds = 600.0
    joins_s: tuple[Seconds, ...]
    """By host; one that never comes joins after the scenario's end."""
    refusals: tuple[Refusal, ...] = ()
    armed_at_s: Seconds | None = None
    """When the operator started it."""
    trained_from_s: Seconds | None = None
    """When the first window began; the world formed just before."""
    trained_until_s: Seconds | None = None
    epochs: int = 12
    done_fraction: float = 0.35
    """How much of all samples is trained at `trained_until_s`."""
    faults: tuple[Fault, ...] = ()
    stop: StopAsked | None = None
    ending: Ending | None = None

    @cached_property
    def lost_at_s(self) -> tuple[Seconds, ...]:
        """When each rank was given up; infinite for one that never was."""
        silent_s = self.silent_from_s
        losses = {fault.rank: fault.at_s for fault in self.faults if isinstance(fault, Loss)}
        return tuple(
            min(losses.get(rank, math.inf), silent_s[rank] + HEARTBEAT_CEILING_S)
            for rank in range(len(self.cohort.ranks))
        )

    @cached_property
    def silent_from_s(self) -> tuple[Seconds, ...]:
        """Since when each rank is not heard; infinite for one that always is."""
        hosts = {fault.host: fault.from_s for fault in self.faults if isinstance(fault, Silence)}
        return tuple(hosts.get(rank.host, math.inf) for rank in self.cohort.ranks)
