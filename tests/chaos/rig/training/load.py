"""Stands in for `flodl_core.training.load`: the job is its options, and nothing is imported."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flodl_core.messages.job import JobRef


@dataclass(frozen=True)
class JobSource:
    """Which job, and where."""

    ref: JobRef
    path: Path | None


@dataclass(frozen=True)
class StandInJob:
    """Options of a job without torch."""

    samples: int = 96
    batch_size: int = 4
    epochs: int = 2
    params: int = 208
    """A multiple of 16: the wire pads to it."""
    burn_s: float = 0.0
    """How long rank 1's third batch holds the interpreter lock, in one call."""


def load_job(ref: JobRef, *, path: Path | None = None) -> StandInJob:
    """Return the job's options."""
    known = StandInJob.__dataclass_fields__
    given: dict[str, Any] = {name: value for name, value in ref.args.items() if name in known}
    return StandInJob(**given)
