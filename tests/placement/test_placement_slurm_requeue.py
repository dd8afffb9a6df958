"""The batch script of the page on several machines, word for word, in a real Slurm of one node.

What a cluster of four nodes has and this one lacks is taken out of it; the signal that Slurm
sends before the end of a time limit is sent by hand.
"""

import json
import re
import subprocess
import uuid
from pathlib import Path

import pytest
from harness import FLODL, LONG_S, SHORT_S, environment, run_flodl
from placing_rig import slurm, why_no_slurm
from process_table import find_processes, look_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

TRAINS = r"epoch \d+/\d+  step [1-9]"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "placement.md"


def script() -> str:
    """The script of the page, for this machine."""
    (text,) = re.findall(r"```bash\n(#!/bin/sh\n.*?)```", PAGE.read_text(), re.DOTALL)
    for theirs, ours in (
        ("--nodes=4 --ntasks-per-node=1 --gpus-per-node=2", "--nodes=1 --ntasks-per-node=1"),
        ("flodl headless train.py:job", "flodl headless synthetic --epochs 100000 --devices cpu"),
        ("--hosts 4 --ranks-per-host 2 --bind 0.0.0.0", "--hosts 2 --ranks-per-host 1 --port 0"),
    ):
        assert text.count(theirs) == 1, theirs
        text = text.replace(theirs, ours)
    return text


@pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm() or "-")
def test_a_job_that_meets_its_time_limit_saves_is_requeued_and_goes_on(tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    (place / "job.sh").write_text(script())
    mark = uuid.uuid4().hex
    with slurm(tmp_path / "slurm") as conf:
        env = {**environment(place, mark), **conf}
        env["PATH"] = f"{Path(FLODL).parent}:{env['PATH']}"

        def ask(*words: str) -> str:
            return subprocess.run(
                words, cwd=place, env=env, check=True, capture_output=True, text=True, timeout=60
            ).stdout

        number = ask("sbatch", "--parsable", "job.sh").strip()
        output = place / f"slurm-{number}.out"

        def said(word: str, *, times: int) -> bool:
            text = output.read_text() if output.exists() else ""
            return len(re.findall(word, text)) >= times

        def trains(times: int) -> None:
            assert look_until(lambda: said(TRAINS, times=times), LONG_S), output.read_text()

        trains(1)
        ask("scancel", "--batch", "--signal=TERM", number)
        assert look_until(lambda: requeued(ask, number), LONG_S), output.read_text()
        assert (place / "out" / "model.meta.json").exists(), output.read_text()
        before = len(re.findall(TRAINS, output.read_text()))
        trains(before + 1)
        state = run_flodl(place, "status", "--json", env=env)
        assert json.loads(state.out)["run"]["resumed_from"] == "out/model", state

        stopped = run_flodl(place, "stop", env=env)
        assert stopped.code == 0, stopped
        shown = ["squeue", "--noheader", "--jobs", number]
        assert look_until(lambda: not ask(*shown).strip(), SHORT_S), output.read_text()
        told = ask("scontrol", "show", "job", number)
        assert "Restarts=1" in told, "a stop by hand is no reason to begin again"
        assert "ExitCode=4:0" in told
        assert look_until(lambda: not find_processes(mark), SHORT_S)


def requeued(ask, number: str) -> bool:
    """Whether the job waits to begin again."""
    told = ask("scontrol", "show", "job", number)
    return "Restarts=1" in told and "JobState=PENDING" in told
