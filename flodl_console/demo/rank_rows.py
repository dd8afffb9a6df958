"""The made-up run's ranks as rows of the status document.

What it is: each rank's state and figures at one instant of training.
What it is not: the rest of the document.
Who drives it: `demo.document`.
"""

import math
from dataclasses import dataclass
from typing import Final

from flodl_console.demo.history import declared_rank, divergences
from flodl_console.demo.noise import spread, unit
from flodl_console.demo.numbers import Numbers, weights
from flodl_console.demo.pace import Era
from flodl_console.demo.schedule import Window
from flodl_console.demo.script import (
    BATCH_SAMPLES,
    HEARTBEAT_CEILING_S,
    STALL_CEILING_S,
    Loss,
    Save,
    Stall,
)
from flodl_core.ids import RankPhase
from flodl_core.telemetry.state import RankState, ResourceState
from flodl_core.units import MIB, Milliseconds, Seconds

HEARTBEAT_EVERY_S: Final = 1.0
_SNAPSHOT_PART: Final = 0.2
_REDUCE_PART: Final = 0.85
_USUAL_SYNC_S: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An instant of training, with what every row needs of it."""

    at_s: Seconds
    finished: int
    """Windows that have ended."""
    window: Window | None
    """The one under way; None once training is over."""
    batches: tuple[int, ...]
    """By rank, in the finished windows."""
    steps: tuple[int, ...]
    """By rank, in the window under way."""
    era: Era

    @property
    def is_pending(self) -> bool:
        """Whether an averaging is under way."""
        return self.window is not None and self.at_s >= self.window.computed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figures:
    """What the last finished window says of a rank."""

    weight: float | None = None
    divergence: float | None = None
    ms_per_batch: Milliseconds | None = None
    loss: float | None = None


def moment_at(numbers: Numbers, at_s: Seconds) -> Moment:
    """Return the moment of an instant at or after the first batch."""
    schedule = numbers.schedule
    finished, window = schedule.finished(at_s), schedule.under_way(at_s)
    era = schedule.pace.at(at_s)
    return Moment(
        at_s=at_s,
        finished=finished,
        window=window,
        batches=schedule.batches_by_rank(finished),
        steps=_steps(numbers, window, era, at_s),
        era=era,
    )


def rank_rows(numbers: Numbers, moment: Moment) -> tuple[RankState, ...]:
    """Return every rank's row."""
    figures = _figures(numbers, moment)
    rate = numbers.throughput(moment.finished)
    rate_of_one = rate / sum(moment.batches) if rate else None
    return tuple(
        _row(numbers, moment, rank, figures=row, rate_of_one=rate_of_one)
        for rank, row in enumerate(figures)
    )


def is_missing(numbers: Numbers, moment: Moment, rank: int) -> bool:
    """Return whether the averaging under way waits for a rank beyond the usual."""
    window = moment.window
    if window is None or not moment.is_pending or not moment.era.alive[rank]:
        return False
    if numbers.script.silent_from_s[rank] <= moment.at_s:
        return True
    return any(
        isinstance(fault, Stall)
        and fault.rank == rank
        and window.start_s <= fault.from_s < window.end_s
        for fault in numbers.script.faults
    )


def heartbeat_age_s(numbers: Numbers, at_s: Seconds, rank: int) -> Seconds:
    """Return how long ago a rank was last heard."""
    silent_s = numbers.script.silent_from_s[rank]
    if at_s >= silent_s:
        return at_s - silent_s
    return (at_s + unit(numbers.script.seed, 21, rank)) % HEARTBEAT_EVERY_S


def _steps(numbers: Numbers, window: Window | None, era: Era, at_s: Seconds) -> tuple[int, ...]:
    if window is None:
        return (0,) * len(era.alive)
    if at_s >= window.computed_s:
        return tuple(
            n if alive else 0 for n, alive in zip(window.plan.done, era.alive, strict=True)
        )
    silent = numbers.script.silent_from_s
    return tuple(
        min(n, math.floor(max(0.0, min(at_s, silent_s) - window.start_s) * 1000.0 / ms))
        if alive
        else 0
        for n, ms, alive, silent_s in zip(
            window.plan.counts, era.true_ms, era.alive, silent, strict=True
        )
    )


def _figures(numbers: Numbers, moment: Moment) -> list[_Figures]:
    if not moment.finished:
        return [_Figures() for _ in moment.batches]
    last = numbers.schedule.windows[moment.finished - 1]
    return [
        _Figures(weight=weight, divergence=divergence, ms_per_batch=ms, loss=loss)
        for weight, divergence, ms, loss in zip(
            weights(last),
            divergences(numbers, last),
            numbers.ms_per_batch(last),
            numbers.losses(last),
            strict=True,
        )
    ]


def _row(
    numbers: Numbers,
    moment: Moment,
    rank: int,
    *,
    figures: _Figures,
    rate_of_one: float | None,
) -> RankState:
    script, at_s = numbers.script, moment.at_s
    who = script.cohort.ranks[rank]
    is_lost = at_s >= script.lost_at_s[rank]
    state = RankPhase.LOST if is_lost else _state(numbers, moment, rank)
    works = state is RankPhase.TRAINING
    batches, total = moment.batches[rank], sum(moment.batches) or None
    return RankState(
        rank=rank,
        host=script.cohort.hosts[who.host].name,
        device=who.device,
        gpu=who.card.name,
        cause=_cause(numbers, rank) if is_lost else "",
        state=state,
        phase=state.value,
        batch_count=batches + moment.steps[rank],
        planned_batches=moment.window.plan.counts[rank] if moment.window and not is_lost else None,
        steps_in_window=moment.steps[rank],
        ms_per_batch=figures.ms_per_batch,
        samples=batches * BATCH_SAMPLES,
        share=batches / total if total else None,
        weight=None if is_lost else figures.weight,
        throughput=rate_of_one * batches if rate_of_one is not None else None,
        loss=figures.loss,
        divergence=None if is_lost else figures.divergence,
        heartbeat_age_s=None if is_lost else heartbeat_age_s(numbers, at_s, rank),
        heartbeat_ceiling_s=HEARTBEAT_CEILING_S,
        progress_age_s=_progress_age_s(numbers, moment, rank) if works else None,
        progress_ceiling_s=STALL_CEILING_S if works else None,
        resources=None if is_lost else _resources(numbers, moment, rank, works=works),
    )


def _state(numbers: Numbers, moment: Moment, rank: int) -> RankPhase:
    window, at_s = moment.window, moment.at_s
    if rank == 0 and is_saving(numbers, at_s):
        return RankPhase.SAVING
    if window is None:
        return RankPhase.DONE
    if not moment.is_pending:
        is_through = moment.steps[rank] >= window.plan.counts[rank]
        return RankPhase.HELD if is_through else RankPhase.TRAINING
    if is_missing(numbers, moment, rank):
        return RankPhase.REDUCING
    usual_s = min(window.end_s - window.computed_s, _USUAL_SYNC_S)
    part = (at_s - window.computed_s) / usual_s
    if part > 1.0 or declared_rank(numbers, window) == rank:
        return RankPhase.HELD
    if part < _SNAPSHOT_PART:
        return RankPhase.SNAPSHOT
    return RankPhase.REDUCING if part < _REDUCE_PART else RankPhase.ADOPTING


def _cause(numbers: Numbers, rank: int) -> str:
    script = numbers.script
    for fault in script.faults:
        if isinstance(fault, Loss) and fault.rank == rank:
            return f"its process ended with {fault.signal}"
    host = script.cohort.hosts[script.cohort.ranks[rank].host].name
    return f"its host {host} was lost"


def is_saving(numbers: Numbers, at_s: Seconds) -> bool:
    """Return whether a checkpoint is being written."""
    return any(
        isinstance(fault, Save) and fault.from_s <= at_s < fault.until_s
        for fault in numbers.script.faults
    )


def _progress_age_s(numbers: Numbers, moment: Moment, rank: int) -> Seconds:
    silent_s = numbers.script.silent_from_s[rank]
    if moment.at_s >= silent_s:
        return moment.at_s - silent_s
    began_s = moment.window.start_s if moment.window else moment.at_s
    return (moment.at_s - began_s) % (moment.era.true_ms[rank] / 1000.0)


def _resources(numbers: Numbers, moment: Moment, rank: int, *, works: bool) -> ResourceState:
    card = numbers.script.cohort.ranks[rank].card
    jitter = spread(numbers.script.seed, 22, rank, int(moment.at_s))
    return ResourceState(
        cpu_percent=round(96.0 + 12.0 * jitter if works else 14.0, 1),
        ram_used_bytes=1400 * MIB + rank % 7 * 11 * MIB,
        gpu_percent=round(min(100.0, 95.0 - 5.0 * jitter) if works else 3.0, 1),
        vram_used_bytes=int(card.memory_bytes * (0.61 + 0.02 * spread(numbers.script.seed, rank))),
        vram_total_bytes=card.memory_bytes,
    )
