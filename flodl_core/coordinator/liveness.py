"""Two signals of life: the process answers, and its work progresses.

What it is: pure rules over one rank's record. Silence above the heartbeat ceiling is
death, unless fresh word from its operating system says that it burns CPU outside a
reduce: then it is busy, until the progress ceiling. Work that brings no batch within
its own ceiling is a rank that answers but must go.
What it is not: the consequence; `dead_ranks` draws it.
Who drives it: `coordinator.tick`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flodl_core.coordinator.ceiling import Ceiling
from flodl_core.coordinator.cohort import RankRecord
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.ids import Rank, RankPhase
from flodl_core.messages.job import RunSpec
from flodl_core.units import Seconds

STATS_FRESH_S: Seconds = 5.0
"""Word from the operating system is each second; older than this it proves nothing."""

BURNING_S: Seconds = 0.05
"""CPU time between two of those words that is work; a rank that only waits uses a hundredth."""

MEAN_BATCHES_OF_PROGRESS = 20
"""A rank may take this many of its mean batches for one."""

_IN_REDUCE = (RankPhase.SNAPSHOT, RankPhase.REDUCING, RankPhase.ADOPTING)


def heartbeat_ceiling(record: RankRecord, spec: RunSpec) -> Ceiling | None:
    """The silence of a rank that was heard, and how long it may last."""
    if record.heard_at is None:
        return None
    return Ceiling(record.heard_at, spec.heartbeat_timeout_s)


def progress_limit(record: RankRecord, spec: RunSpec, settings: CoordinatorSettings) -> Seconds:
    """How long this rank may take for one batch."""
    if record.batches == 0:
        return max(spec.progress_timeout_s, settings.first_batch_timeout_s)
    mean_s = (record.mean_batch_ms or 0.0) / 1000.0
    return max(spec.progress_timeout_s, MEAN_BATCHES_OF_PROGRESS * mean_s)


def is_burning(record: RankRecord, now: Seconds) -> bool:
    """Whether fresh word says that the process runs, burns CPU and is in no reduce.

    The word outlives the burning by `STATS_FRESH_S`, so that a rank which has just
    come back has the time to say so.
    """
    if record.burned_at is None or record.phase in _IN_REDUCE:
        return False
    return not Ceiling(record.burned_at, STATS_FRESH_S).passed(now)


def is_silent(record: RankRecord, spec: RunSpec, now: Seconds) -> bool:
    """Whether the rank has been silent above the heartbeat ceiling."""
    ceiling = heartbeat_ceiling(record, spec)
    return ceiling is not None and ceiling.passed(now)


def silence_due(
    record: RankRecord, spec: RunSpec, settings: CoordinatorSettings, now: Seconds
) -> Seconds | None:
    """The first instant at which this rank's silence is its death, as things stand.

    A busy rank has until its word from the operating system is stale, and never
    longer than its progress ceiling.
    """
    ceiling = heartbeat_ceiling(record, spec)
    if ceiling is None:
        return None
    if not is_burning(record, now):
        return ceiling.due()
    assert record.burned_at is not None
    limit = max(spec.heartbeat_timeout_s, progress_limit(record, spec, settings))
    stale = Ceiling(record.burned_at, STATS_FRESH_S).due()
    return max(ceiling.due(), min(stale, Ceiling(ceiling.since_s, limit).due()))


@dataclass(frozen=True, slots=True)
class Silence:
    """A rank that is dead by silence, and the words for it.

    Attributes:
        host_down: every alive rank of its host is silent.
    """

    rank: Rank
    cause: str
    host_down: bool


def review_silence(
    alive: Sequence[RankRecord], spec: RunSpec, settings: CoordinatorSettings, now: Seconds
) -> tuple[Silence, ...]:
    """Find the ranks whose silence is death.

    If every alive rank of a host of several is silent, the relay or the link is named
    from the first of them on. They are lost together, since their last words came a
    beat apart, except that one which burns CPU keeps its own time: it may be busy.
    """
    due = {record.rank: silence_due(record, spec, settings, now) for record in alive}
    beat_s = min(2 * spec.heartbeat_interval_s, spec.heartbeat_timeout_s / 4)
    nearly = [record for record in alive if _is_due(due[record.rank], now + beat_s)]
    hosts = {record.host for record in alive if _is_due(due[record.rank], now)}
    hosts_down = hosts & _hosts_wholly_in(nearly, alive).keys()
    unheard = [record for record in alive if is_silent(record, spec, now + beat_s)]
    ranks_unheard = _hosts_wholly_in(unheard, alive)
    return tuple(
        Silence(
            rank=record.rank,
            cause=_word_silence(record, spec, now, host_ranks=ranks_unheard.get(record.host, 0)),
            host_down=record.host in hosts_down,
        )
        for record in nearly
        if record.host in hosts_down or _is_due(due[record.rank], now)
    )


def _is_due(due: Seconds | None, now: Seconds) -> bool:
    return due is not None and due <= now


def _hosts_wholly_in(silent: Iterable[RankRecord], alive: Sequence[RankRecord]) -> dict[str, int]:
    """Hosts all of whose alive ranks are among the silent, with their number."""
    ranks = Counter(record.host for record in alive)
    quiet = Counter(record.host for record in silent)
    return {host: count for host, count in quiet.items() if count == ranks[host]}


def _word_silence(record: RankRecord, spec: RunSpec, now: Seconds, *, host_ranks: int) -> str:
    assert record.heard_at is not None
    age = f"silent for {now - record.heard_at:.0f} s (ceiling {spec.heartbeat_timeout_s:g} s)"
    phase = f"last seen {record.phase.value}"
    if host_ranks > 1:
        return f"{age}, like every rank of {record.host}: its relay or link is down; {phase}"
    return f"{age}; {phase}"
