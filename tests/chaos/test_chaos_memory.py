"""A rank that takes more memory than its host has: the kernel ends it, and that is told."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from aftermath import check_each_once
from harness import Launched

from flodl_core.units import MIB

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(200)]

JOB = f"{Path(__file__).resolve().parents[1] / 'processes' / 'faulty_job.py'}:job"
LIMIT = 1_500 * MIB
"""Enough for a launcher and two ranks, a few hundred MiB each."""
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with little memory; skipped where none can be made."""
    is_v1 = (V1 / "memory.limit_in_bytes").exists()
    place = (V1 if is_v1 else V2) / f"flodl-{uuid.uuid4().hex[:8]}"
    limit = place / ("memory.limit_in_bytes" if is_v1 else "memory.max")
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        limit.write_text(str(LIMIT))
    except OSError as error:
        place.rmdir()
        pytest.skip(f"memory cannot be limited here: {error}")
    yield place
    place.rmdir()


def test_a_rank_without_memory_is_named_and_the_other_trains_its_samples(
    tmp_path: Path, group: Path
) -> None:
    inside = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    words = (JOB, "--job-arg", "fault=memory", "--job-arg", "rank=1", "--ranks", "2")
    run = Launched(tmp_path, *words, "--sample-log", "auto", through=inside)
    try:
        told = run.until_lost(1)
        assert "SIGKILL (out of memory)" in told
        assert run.finish() == 0
        check_each_once(run.directory / "samples.jsonl", samples=256, each_pass=256, passes=2)
        death = json.loads(Path(f"{run.stem}.rank1.death.json").read_text())
        assert (death["kind"], death["signal"]) == ("out_of_memory", "SIGKILL")
        assert [row["state"] for row in run.summary["ranks"]] == ["done", "lost"]
        assert run.stem.with_name("consensus.safetensors").exists()
    finally:
        run.destroy()
