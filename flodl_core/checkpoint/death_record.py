"""`<save_path>.rank<N>.death.json`: how a rank died, beside its checkpoint.

What it is: one small file for the last death of a rank. The rank writes it where its
training failed; its host does where the system or an operator ended the process, which
then could say nothing itself.
What it is not: a log, nor read by any run.
Who drives it: the training thread; the agent or launcher for its children.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

SCHEMA_VERSION: Final = 1


class DeathKind(StrEnum):
    """What ended a rank."""

    EXCEPTION = "exception"
    """Its training raised."""
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out_of_memory"
    """The kernel ended it because its host or group had no memory left."""
    EXIT = "exit"
    """Its process left by itself, without a word."""
    EVICTED = "evicted"
    """The run went on without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathFacts:
    """How a rank died."""

    rank: int
    world_size: int
    host: str
    kind: DeathKind
    error: str
    """One line."""
    signal: str | None = None
    """Such as SIGKILL."""
    exit_code: int | None = None


def death_path(save_path: str, rank: int) -> Path:
    """Return where the record of a rank lies."""
    return Path(f"{save_path}.rank{rank}.death.json")


def write_death_record(save_path: str, death: DeathFacts, *, at: str) -> Path | None:
    """Write the record.

    Args:
        save_path: stem of what ranks of this host write; empty for none.
        death: what is known.
        at: UTC, ISO 8601.

    Returns:
        The file, or None where there is no place for one or it cannot be written: who
        ends must not fail at saying so.
    """
    if not save_path:
        return None
    path = death_path(save_path, death.rank)
    record = {
        "schema_version": SCHEMA_VERSION,
        "rank": death.rank,
        "world_size": death.world_size,
        "host": death.host,
        "kind": death.kind.value,
        "error": death.error,
        "signal": death.signal,
        "exit_code": death.exit_code,
        "unix_time_secs": int(datetime.fromisoformat(at).timestamp()),
    }
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(record) + "\n")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        return None
    return path
