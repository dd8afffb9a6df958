"""What a rank leaves behind when its training failed: one small file beside the checkpoint."""

import json
import os
from datetime import datetime
from pathlib import Path

from flodl_core.net import clock
from flodl_core.training.seat import Seat

SCHEMA_VERSION = 1


def write_death_record(seat: Seat, error: str) -> Path | None:
    """Write `<save_path>.rank<N>.death.json`.

    Args:
        seat: the rank that failed.
        error: one line.

    Returns:
        The file, or None where there is no place for one or it cannot be written: a
        rank that fails must not fail at saying so.
    """
    stem = seat.envelope.spec.save_path
    if not stem:
        return None
    path = Path(f"{stem}.rank{seat.rank}.death.json")
    record = {
        "schema_version": SCHEMA_VERSION,
        "rank": seat.rank,
        "world_size": seat.envelope.world_size,
        "error": error,
        "unix_time_secs": int(datetime.fromisoformat(clock.utc_iso()).timestamp()),
    }
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(record) + "\n")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        return None
    return path
