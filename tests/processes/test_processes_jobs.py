"""Jobs that go wrong in the middle: what they say, who goes on, what is kept."""

import json
import os
from pathlib import Path

import pytest
from aftermath import check_each_once, logged, meta_of, sample_counts
from harness import Launched
from safetensors.torch import load_file

from flodl_core.units import MIB

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(240)]

FAULTY = f"{Path(__file__).with_name('faulty_job.py')}:job"
SAMPLES, PASSES = 256, 2
CAUSE = "the labels of this batch are missing"


def faulty(**args: object) -> list[str]:
    given = [word for key, value in args.items() for word in ("--job-arg", f"{key}={value}")]
    return [FAULTY, *given, "--sample-log", "auto"]


@pytest.fixture(scope="module")
def runs(launch_ahead) -> dict[str, Launched]:
    """Runs that end by themselves, whatever goes wrong in them."""
    return {
        "all raise": launch_ahead(*faulty(fault="raise"), "--ranks", "2", as_json=False),
        "one raises": launch_ahead(
            *faulty(fault="raise", rank=1), "--hosts", "2", "--ranks-per-host", "1"
        ),
        "some nan": launch_ahead(
            *faulty(fault="nan", rank="0,2", at="3,6", times="10000,1"), "--ranks", "3"
        ),
        "all nan": launch_ahead(*faulty(fault="nan", at=3, times=10_000), "--ranks", "2"),
    }


def test_a_job_that_raises_everywhere_ends_with_one_clear_line(runs) -> None:
    run = runs["all raise"]
    assert run.finish() == 1
    printed = "\n".join([*run.texts("line"), run.stderr])
    assert "Traceback" not in printed
    assert CAUSE in run.texts("line")[-1] + run.texts("line")[-2]
    assert "faulty_job.py" in printed
    record = json.loads(Path(f"{run.stem}.rank0.death.json").read_text())
    assert CAUSE in record["error"]
    assert logged(run.directory, "rank0", "Traceback")
    meta = meta_of(run.stem)
    assert (meta["reason"], meta["sync_round"]) == ("all_ranks_lost", 1)
    assert all(value.isfinite().all() for value in load_file(f"{run.stem}.safetensors").values())


def test_survivors_of_a_rank_whose_job_raises_train_its_samples(runs) -> None:
    run = runs["one raises"]
    assert run.finish() == 0
    run.check_quiet()
    check_each_once(
        run.directory / "samples.jsonl", samples=SAMPLES, each_pass=SAMPLES, passes=PASSES
    )
    (alert,) = run.texts("alert")
    assert "rank 1" in alert
    assert CAUSE in alert
    assert [row["state"] for row in run.summary["ranks"]] == ["done", "lost"]
    assert run.summary["alerts"] == {"rank_lost": 1}


def test_values_that_are_not_finite_are_left_out_and_a_rank_that_keeps_on_is_evicted(
    runs,
) -> None:
    run = runs["some nan"]
    assert run.finish() == 0
    run.check_quiet()
    assert [row["state"] for row in run.summary["ranks"]] == ["lost", "done", "done"]
    alerts = " ".join(run.texts("alert"))
    assert "not finite in 3 cycles in a row" in alerts
    assert "values of rank 2" in alerts
    assert run.summary["alerts"] == {"nonfinite": 3 + 1, "rank_lost": 1}
    assert run.summary["samples_dropped"] == (3 + 1) * 8
    dropped = sample_counts(run.directory / "samples.jsonl", "dropped")
    assert dropped[0].total() == (3 + 1) * 8
    trained = sample_counts(run.directory / "samples.jsonl")
    assert set((trained[0] + dropped[0]).values()) == {1}
    assert [len(trained[0] + dropped[0]), len(trained[1])] == [SAMPLES, SAMPLES]
    assert all(value.isfinite().all() for value in load_file(f"{run.stem}.safetensors").values())


def test_a_cohort_without_finite_values_stops_at_the_last_commit(runs) -> None:
    run = runs["all nan"]
    assert run.finish() == 1
    run.check_quiet()
    assert run.summary["reason"] == "non_finite"
    meta = meta_of(run.stem)
    assert (meta["reason"], meta["sync_round"]) == ("non_finite", 2)
    assert meta["samples_trained"] == 2 * 2 * 8
    assert all(value.isfinite().all() for value in load_file(f"{run.stem}.safetensors").values())


def test_what_a_chatty_job_prints_is_bounded_and_its_end_is_kept(launch) -> None:
    run = launch(*faulty(fault="chatty", at=1, times=10_000, samples=384), "--ranks", "2")
    assert run.finish() == 0
    run.check_quiet()
    for rank in range(2):
        path = run.directory / "logs" / f"rank{rank}.out"
        assert path.stat().st_size <= 17 * MIB
        with path.open("rb") as output:
            assert output.readline() == b"[older output was dropped]\n"
            output.seek(-2 * MIB, os.SEEK_END)
            assert any(line.startswith(b" 48 ") for line in output.readlines())
