"""The made-up run's windows as rows of `GET /history`.

What it is: one row from one scheduled window, built when it is asked for.
What it is not: the schedule.
Who drives it: `demo.recording`.
"""

from flodl_console.demo.numbers import Numbers, instant, weights
from flodl_console.demo.schedule import Window
from flodl_console.demo.script import BATCH_SAMPLES, NonFinite
from flodl_core.telemetry.records import WindowRecord


def window_record(numbers: Numbers, index: int) -> WindowRecord:
    """Return the row of the finished window at `index`, counted from 0."""
    windows = numbers.schedule.windows
    window = windows[index]
    samples = (window.batches_before + window.plan.batches) * BATCH_SAMPLES
    began_s = windows[index - 1].end_s if index else window.start_s
    following = windows[index + 1] if index + 1 < len(windows) else window
    alive = numbers.schedule.pace.at(window.end_s).alive
    return WindowRecord(
        seq=index + 1,
        at=instant(window.end_s),
        uptime_s=window.end_s,
        cycle=window.cycle,
        version=window.cycle,
        epoch=numbers.epoch(samples - 1),
        global_step=window.batches_before + window.plan.batches,
        outcome="committed",
        samples_done=samples,
        samples_total=numbers.samples_total,
        loss=numbers.loss(window),
        throughput=numbers.throughput(index + 1),
        ideal_throughput=numbers.ideal_throughput(window.end_s),
        window_ms=(window.end_s - began_s) * 1000.0,
        sync_ms=window.sync_ms,
        overhead=window.overhead,
        anchor=window.anchor,
        anchor_rank=window.anchor_rank,
        elche_phase=window.elche_phase,
        verdict=window.verdict,
        reason=window.reason,
        batch_counts=following.plan.counts,
        ms_per_batch=tuple(
            ms if is_alive else None
            for ms, is_alive in zip(numbers.ms_per_batch(window), alive, strict=True)
        ),
        weights=weights(window),
        divergences=divergences(numbers, window),
    )


def divergences(numbers: Numbers, window: Window) -> tuple[float | None, ...]:
    """Return each rank's divergence in a window; None for one that brought nothing."""
    declared = declared_rank(numbers, window)
    moved = numbers.divergences(window)
    return tuple(
        moved[rank] if n and rank != declared else None for rank, n in enumerate(window.plan.done)
    )


def declared_rank(numbers: Numbers, window: Window) -> int | None:
    """Return the rank whose values were not finite in a window, if one's were."""
    for fault in numbers.script.faults:
        if isinstance(fault, NonFinite) and window.start_s <= fault.at_s < window.end_s:
            return fault.rank
    return None
