"""What sets a rank apart: it is lost, late, slow, throttled or awaited.

What it is: the rule that marks ranks, each mark with its reason in a few words.
What it is not: the run's own judgement; the run acts at its ceilings and nowhere else.
Who drives it: the rank table, the verdict, the rank's own page and the tree.

Slow is measured against the rank itself: a slow card that does fewer batches is as it
should be, one that takes twice its earlier time is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from statistics import median
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from flodl_console.view.facts import alive_ranks, unacknowledged
from flodl_console.view.formats import duration, finite, milliseconds
from flodl_console.view.model import ConsoleView
from flodl_console.view.texts import clean
from flodl_console.view.tones import Glyph, Tone
from flodl_core.ids import RankPhase
from flodl_core.telemetry.records import WindowRecord
from flodl_core.telemetry.state import RankState, StateDocument, WaitState

ValueT = TypeVar("ValueT")

LATE_AFTER_S: Final = 5.0
LATE_BATCHES: Final = 3.0
"""A batch that takes so many times the rank's mean is late, where that is over LATE_AFTER_S."""
SLOW_RATIO: Final = 2.0
AWAITED_AFTER_S: Final = 1.0
MIN_BASELINE_WINDOWS: Final = 5
MIN_TWINS: Final = 3
"""So many ranks with equal cards tell what is usual for one."""

_BASELINE_SAMPLES: Final = 15
_NEWEST_LEFT_OUT: Final = 3


class RankMark(StrEnum):
    """What sets a rank apart, gravest first."""

    MISSING = "missing"
    """It is lost."""
    LATE = "late"
    """It is silent, or in one batch, for longer than is usual."""
    SLOW = "slow"
    """Its batches take at least twice its earlier time, or that of equal cards."""
    THROTTLED = "throttled"
    """It begins no other batch in this window, because counts shrank under it."""
    AWAITED = "awaited"
    """The others are done with their window and wait for it."""
    NONE = "none"


MARK_LOOKS: Final = {
    RankMark.MISSING: (Glyph.BAD, Tone.BAD),
    RankMark.LATE: (Glyph.WARN, Tone.WARN),
    RankMark.SLOW: (Glyph.SLOW, Tone.WARN),
    RankMark.THROTTLED: (Glyph.WAITING, Tone.INFO),
    RankMark.AWAITED: (Glyph.WAITING, Tone.INFO),
    RankMark.NONE: (Glyph.NONE, Tone.INFO),
}


@dataclass(frozen=True, slots=True)
class Marked:
    """A mark and its reason."""

    mark: RankMark
    note: str
    """In a few words, the weightiest first; cleaned, not cut."""
    ratio: float | None = None
    """How many times its usual time a slow rank takes."""


UNMARKED: Final = Marked(RankMark.NONE, "")


class _Held(Generic[ValueT]):
    """A value that equals itself only, so that a cache need not look into it."""

    __slots__ = ("value",)

    def __init__(self, value: ValueT) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def mark_ranks(view: ConsoleView) -> Mapping[int, Marked]:
    """Return the mark of every rank of the document; the last few answers are kept."""
    if view.document is None:
        return {}
    return _marks_of(_Held(view.document), _Held(view.windows))


@lru_cache(maxsize=4)
def _marks_of(
    held_document: _Held[StateDocument], held_windows: _Held[tuple[WindowRecord, ...]]
) -> Mapping[int, Marked]:
    document, windows = held_document.value, held_windows.value
    waits = {wait.rank: wait for wait in reversed(document.waits) if wait.rank is not None}
    usual = _usual_times(windows, document.ranks)
    awaited = _awaited(document)
    return MappingProxyType(
        {
            rank.rank: _mark(
                rank, wait=waits.get(rank.rank), usual_ms=usual.get(rank.rank), awaited=awaited
            )
            for rank in document.ranks
        }
    )


def _mark(
    rank: RankState,
    *,
    wait: WaitState | None,
    usual_ms: float | None,
    awaited: Mapping[int, str],
) -> Marked:
    if rank.state is RankPhase.LOST:
        cause = clean(rank.cause)
        return Marked(RankMark.MISSING, f"lost: {cause}" if cause else "lost")
    late = _lateness(rank, wait)
    if late:
        return Marked(RankMark.LATE, late)
    now_ms = finite(rank.ms_per_batch)
    if usual_ms and now_ms is not None and now_ms >= SLOW_RATIO * usual_ms:
        ratio = now_ms / usual_ms
        note = f"{times(ratio)} the usual {milliseconds(usual_ms)} ms"
        return Marked(RankMark.SLOW, note, ratio)
    if rank.throttled:
        return Marked(RankMark.THROTTLED, "throttled: begins no other batch")
    if rank.rank in awaited:
        return Marked(RankMark.AWAITED, awaited[rank.rank])
    return UNMARKED


def times(ratio: float) -> str:
    """Return a ratio as `×10` or `×2.4`; at most 5 cells."""
    if ratio >= 999.5:
        return "×>999"
    return f"×{ratio:.0f}" if ratio >= 9.95 else f"×{ratio:.1f}"


def _lateness(rank: RankState, wait: WaitState | None) -> str:
    silent_s, in_batch_s = finite(rank.heartbeat_age_s), finite(rank.progress_age_s)
    follows = f", then {clean(wait.outcome)}" if wait is not None else ""
    if silent_s is not None and silent_s > LATE_AFTER_S:
        word = "busy" if rank.state is RankPhase.BUSY else "silent"
        return f"{word} {_of_ceiling(silent_s, rank.heartbeat_ceiling_s)}{follows}"
    if rank.state is RankPhase.BUSY:
        return f"busy, not answering{follows}"
    usual_s = (finite(rank.ms_per_batch) or 0.0) / 1_000
    if in_batch_s is not None and in_batch_s > max(LATE_AFTER_S, LATE_BATCHES * usual_s):
        return f"batch {_of_ceiling(in_batch_s, rank.progress_ceiling_s)}{follows}"
    return ""


def _of_ceiling(age_s: float, ceiling_s: float | None) -> str:
    """Return an age that is whole also where what follows it is cut away."""
    ceiling = finite(ceiling_s)
    return f"{duration(age_s)}{'' if ceiling is None else f' of {duration(ceiling)}'}"


def _usual_times(
    windows: Sequence[WindowRecord], ranks: Sequence[RankState]
) -> Mapping[int, float]:
    """Return what a batch of each rank usually takes, in ms."""
    usual = _twin_times(ranks)
    past = windows[: max(0, len(windows) - _NEWEST_LEFT_OUT)]
    if len(past) < MIN_BASELINE_WINDOWS:
        return usual
    count = min(_BASELINE_SAMPLES, len(past))
    sampled = [past[index * len(past) // count].ms_per_batch for index in range(count)]
    for rank in ranks:
        own = sorted(
            value
            for times_ms in sampled
            if rank.rank < len(times_ms) and (value := finite(times_ms[rank.rank]))
        )
        if len(own) >= MIN_BASELINE_WINDOWS:
            quartile = own[len(own) // 4]
            usual[rank.rank] = min(quartile, usual.get(rank.rank, quartile))
    return usual


def _twin_times(ranks: Sequence[RankState]) -> dict[int, float]:
    groups: dict[str, list[tuple[int, float]]] = {}
    for rank in ranks:
        value = finite(rank.ms_per_batch)
        if rank.gpu and value:
            groups.setdefault(rank.gpu, []).append((rank.rank, value))
    return {
        number: middle
        for twins in groups.values()
        if len(twins) >= MIN_TWINS
        for middle in (median(value for _, value in twins),)
        for number, _ in twins
    }


def _awaited(document: StateDocument) -> Mapping[int, str]:
    """Return the ranks that the others wait for, with how long that may take."""
    reduce = document.reduce
    if reduce is not None and reduce.state == "pending":
        if (finite(reduce.pending_s) or 0.0) < AWAITED_AFTER_S:
            return {}
        return {rank.rank: "others wait" for rank in unacknowledged(document)}
    alive = alive_ranks(document)
    working = [rank for rank in alive if rank.state is RankPhase.TRAINING]
    held = sum(rank.state is RankPhase.HELD for rank in alive)
    if not held or not working or len(working) > held:
        return {}
    return {
        rank.rank: f"others wait, {duration(left_s)} more"
        for rank in working
        if (left_s := _left_s(rank)) is not None and left_s > AWAITED_AFTER_S
    }


def _left_s(rank: RankState) -> float | None:
    per_batch_ms = finite(rank.ms_per_batch)
    if per_batch_ms is None or rank.planned_batches is None:
        return None
    left = max(0, rank.planned_batches - rank.steps_in_window)
    return finite(left * per_batch_ms / 1_000) if left < 10**9 else None
