"""A writer of checkpoints that is killed at any moment: a complete bundle is always there."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(150)]

WRITER = str(Path(__file__).with_name("chaos_writer.py"))
KILLS = 50


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_fifty_kills_at_any_moment_of_a_save_leave_a_complete_bundle(tmp_path, seed: int) -> None:
    stem = tmp_path / "model"
    command = [sys.executable, WRITER, str(stem), str(KILLS), str(seed)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=140)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    killed = [row for row in rows if row["after"] == "kill"]
    damaged = [row for row in rows if row["after"] != "kill"]
    assert len(killed) == KILLS
    assert damaged
    assert killed[-1]["last"] > 1
    for row in rows:
        assert row["round"] is not None, row
        assert row["value"] == row["round"], row
        assert row["parts"] == [], row
    for before, row in pairwise(rows):
        if row["after"] == "kill":
            assert row["last"] <= row["round"] <= row["last"] + 1, row
        else:
            check_damage(before, row)


def check_damage(before: dict, row: dict) -> None:
    """The bundle that was harmed is named, and the one before it is found.

    It is of the same round where the writer was killed between two of its steps.
    """
    assert row["round"] <= before["round"], row
    assert len(row["skipped"]) > len(before["skipped"]), row
