"""The figures of a made-up training: loss, divergence, weights, samples.

What it is: pure functions of a schedule and an instant or a window.
What it is not: rows of the document or of the history; those are built from it.
Who drives it: `demo.history` and `demo.document`.
"""

import math
from typing import Final

from flodl_console.demo.noise import mix, spread
from flodl_console.demo.schedule import Schedule, Window
from flodl_console.demo.script import BATCH_SAMPLES, Script, Unrest
from flodl_core.units import Milliseconds, Seconds

STARTED_DAY: Final = "2026-01-01T"

_RATE_WINDOWS: Final = 8


class Numbers:
    """Figures of one scenario."""

    def __init__(self, script: Script, schedule: Schedule) -> None:
        self.script = script
        self.schedule = schedule
        batches = max(1, round(schedule.batches / max(script.done_fraction, 1e-3)))
        self.samples_total = batches * BATCH_SAMPLES
        self._all = range(len(script.cohort.ranks))
        self.epoch_samples = max(1, self.samples_total // script.epochs)

    def epoch(self, samples: int) -> int:
        """Return the epoch, from 0, that is under way after so many samples."""
        return min(self.script.epochs - 1, samples // self.epoch_samples)

    def ended_epochs(self, samples: int) -> int:
        """Return how many epochs have ended after so many samples."""
        return min(self.script.epochs, samples // self.epoch_samples)

    def loss(self, window: Window) -> float:
        """Return the mean loss of a window's batches."""
        samples = window.batches_before * BATCH_SAMPLES
        falls = 1.38 + 2.9 / math.sqrt(1.0 + samples / 60_000.0)
        return falls * (1.0 + 0.012 * spread(self.script.seed, 11, window.cycle))

    def losses(self, window: Window) -> list[float]:
        """Return the mean loss of each rank's batches in a window."""
        mean, key = self.loss(window), mix(self.script.seed, 14, window.cycle)
        return [mean * (1.0 + 0.03 * spread(key, rank)) for rank in self._all]

    def divergences(self, window: Window) -> list[float]:
        """Return how far each rank had moved from the average in a window."""
        level, key = self._drift(window), mix(self.script.seed, 12, window.cycle)
        return [level * (1.0 + 0.18 * spread(key, rank)) for rank in self._all]

    def ms_per_batch(self, window: Window) -> list[Milliseconds]:
        """Return each rank's speed as measured in a window."""
        true_ms = self.schedule.pace.at(window.start_s).true_ms
        key = mix(self.script.seed, 13, window.cycle)
        return [ms * (1.0 + 0.03 * spread(key, rank)) for rank, ms in enumerate(true_ms)]

    def _drift(self, window: Window) -> float:
        level = 0.011 + 0.024 / (1.0 + window.cycle / 30.0)
        for fault in self.script.faults:
            if isinstance(fault, Unrest) and fault.from_s <= window.start_s < fault.until_s:
                into = (window.start_s - fault.from_s) / (fault.until_s - fault.from_s)
                level += 0.09 * into
        return level

    def throughput(self, finished: int) -> float | None:
        """Return samples a second over the last windows of one pace; None before two."""
        if finished < 2:
            return None
        first = max(1, finished - _RATE_WINDOWS)
        windows, pace = self.schedule.windows, self.schedule.pace
        era = pace.at(windows[finished - 1].start_s)
        while first < finished - 1 and pace.at(windows[first].start_s) is not era:
            first += 1
        since, until = windows[first - 1], windows[finished - 1]
        batches = until.batches_before + until.plan.batches
        batches -= since.batches_before + since.plan.batches
        return batches * BATCH_SAMPLES / (until.end_s - since.end_s)

    def ideal_throughput(self, at_s: Seconds) -> float:
        """Return samples a second if nothing but the batches took time."""
        return BATCH_SAMPLES * self.schedule.pace.at(at_s).batches_per_s


def weights(window: Window) -> tuple[float | None, ...]:
    """Return each rank's part of a window's mass; None for one that brought nothing."""
    done = window.plan.done
    mass = sum(done)
    return tuple(n / mass if n and mass else None for n in done)


def instant(at_s: Seconds) -> str:
    """Return an instant of the first day of 2026, UTC, so many seconds after midnight."""
    millis = max(0, round(at_s * 1000.0))
    hours, left = divmod(millis, 3_600_000)
    minutes, left = divmod(left, 60_000)
    seconds, millis = divmod(left, 1000)
    return f"{STARTED_DAY}{hours:02d}:{minutes:02d}:{seconds:02d}.{millis:03d}Z"
