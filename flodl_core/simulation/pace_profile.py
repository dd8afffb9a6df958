"""How fast ranks are, window by window: what `flodl simulate cadence` plays.

What it is: frozen numbers, and their forms on the command line.
What it is not: a schedule; the machines under play decide that.
Who drives it: the command line makes one, `simulation.pace_world` plays it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from flodl_core.errors import ConfigError
from flodl_core.units import Milliseconds

MOST_RANKS: Final = 256
MOST_WINDOWS: Final = 100_000
_MOST_MS: Final = 3_600_000.0
_SOURCE: Final = "the command line"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SpeedStep:
    """From window `window` on a batch of `rank` takes `factor` times as long as at first."""

    window: int
    rank: int
    factor: float


@dataclass(frozen=True, slots=True)
class Death:
    """In window `window` the process of `rank` is killed, half way through."""

    window: int
    rank: int


@dataclass(frozen=True, slots=True)
class Hiccup:
    """The average that ends window `window` takes `ms` longer."""

    window: int
    ms: Milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceProfile:
    """A cohort and what befalls it; windows count from 1.

    Attributes:
        batch_ms: cost of a batch of each rank.
        jitter: each batch takes up to this part more or less.
        sync_ms: an average, from the request to the acknowledgements.
        fill_ms: what the first batch of a window costs beyond a later one.
        divergences: the largest one by window; the last one holds for good.
        epoch_batches: batches of an epoch of the whole cohort.
        eval_ms: an evaluation after each epoch; None evaluates nothing.

    Raises:
        ConfigError: a number is out of range, or an event is about a rank that is not there.
    """

    batch_ms: tuple[Milliseconds, ...]
    jitter: float = 0.0
    sync_ms: Milliseconds = 15.0
    fill_ms: Milliseconds = 2.0
    divergences: tuple[float, ...] = (0.01,)
    epoch_batches: int = 1_000_000
    eval_ms: Milliseconds | None = None
    steps: tuple[SpeedStep, ...] = ()
    deaths: tuple[Death, ...] = ()
    hiccups: tuple[Hiccup, ...] = ()

    def __post_init__(self) -> None:
        world = len(self.batch_ms)
        _require(1 <= world <= MOST_RANKS, "speeds", world, f"1 to {MOST_RANKS} ranks")
        for name, values in (("speeds", self.batch_ms), ("sync-ms", (self.sync_ms,))):
            for value in values:
                least = 0.01 if name == "speeds" else 0.0
                _require(least <= value <= _MOST_MS, name, value, f"{least:g} ms to an hour")
        _require(0 <= self.fill_ms <= _MOST_MS, "fill-ms", self.fill_ms, "0 ms to an hour")
        _require(0 <= self.jitter < 1, "jitter", self.jitter, "0 or more and below 1")
        _require(self.epoch_batches >= world, "epoch-batches", self.epoch_batches, "one a rank")
        if self.eval_ms is not None:
            _require(0 <= self.eval_ms <= _MOST_MS, "eval-ms", self.eval_ms, "0 ms to an hour")
        for value in self.divergences:
            _require(0 <= value < math.inf, "divergence", value, "a finite number, 0 or more")
        for step in self.steps:
            _require(step.window >= 1, "step-at", step.window, "a window of 1 or more")
            _require(step.rank < world, "step-at", step.rank, f"a rank below {world}")
            _require(1e-3 <= step.factor <= 1e3, "step-at", step.factor, "a factor, 0.001 to 1000")
        for death in self.deaths:
            _require(death.window >= 1, "death", death.window, "a window of 1 or more")
            _require(death.rank < world, "death", death.rank, f"a rank below {world}")

    def cost_ms(self, rank: int, window: int) -> Milliseconds:
        """Return what a batch of a rank takes in a window, on average."""
        factor = 1.0
        for step in sorted(self.steps, key=lambda one: one.window):
            if step.rank == rank and step.window <= window:
                factor = step.factor
        return self.batch_ms[rank] * factor

    def average_ms(self, window: int) -> Milliseconds:
        """Return what the average at the end of a window takes."""
        return self.sync_ms + sum(one.ms for one in self.hiccups if one.window == window)

    def divergence(self, window: int) -> float:
        """Return the largest divergence of a window."""
        return self.divergences[min(window, len(self.divergences)) - 1]

    def dies_in(self, window: int) -> tuple[int, ...]:
        """Return the ranks that are killed in a window."""
        return tuple(death.rank for death in self.deaths if death.window == window)


def read_numbers(text: str, *, field: str) -> tuple[float, ...]:
    """Return numbers separated by commas.

    Raises:
        ConfigError: there is none, or one is no number.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    _require(bool(words), field, text, "numbers separated by commas")
    return tuple(_number(word, float, field, "a number") for word in words)


def read_step(text: str) -> SpeedStep:
    """Return what `WINDOW:RANK:FACTOR` says."""
    window, rank, factor = _parts(text, "step-at", "WINDOW:RANK:FACTOR")
    return SpeedStep(
        _number(window, int, "step-at", "a whole number"),
        _number(rank, int, "step-at", "a whole number"),
        _number(factor, float, "step-at", "a number"),
    )


def read_death(text: str) -> Death:
    """Return what `WINDOW:RANK` says."""
    window, rank = _parts(text, "death", "WINDOW:RANK")
    return Death(
        _number(window, int, "death", "a whole number"),
        _number(rank, int, "death", "a whole number"),
    )


def read_hiccup(text: str) -> Hiccup:
    """Return what `WINDOW:MS` says."""
    window, ms = _parts(text, "hiccup", "WINDOW:MS")
    found = Hiccup(
        _number(window, int, "hiccup", "a whole number"), _number(ms, float, "hiccup", "a number")
    )
    _require(0 <= found.ms <= _MOST_MS, "hiccup", found.ms, "0 ms to an hour")
    return found


def _parts(text: str, field: str, form: str) -> list[str]:
    parts = text.split(":")
    _require(len(parts) == form.count(":") + 1, field, text, form)
    return parts


def _number(word: str, kind: Callable[[str], _T], field: str, expected: str) -> _T:
    _require(not word.strip().startswith("-"), field, word, f"{expected} that is not negative")
    try:
        return kind(word)
    except ValueError:
        raise _refusal(field, word, expected) from None


def _require(holds: object, field: str, value: object, expected: str) -> None:
    if not holds:
        raise _refusal(field, value, expected)


def _refusal(field: str, value: object, expected: str) -> ConfigError:
    fix = "see flodl simulate --help"
    return ConfigError(field, value, f"expected {expected}", source=_SOURCE, fix=fix)
