"""Real ranks whose job never returns: named, with where they are, at their ceilings."""

import json
from pathlib import Path

import pytest
from aftermath import check_each_once, logged, meta_of
from harness import LONG_S

from flodl_core.roles.stand_in import STAND_IN

pytestmark = [
    pytest.mark.processes,
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

JOB = f"{Path(__file__).with_name('hanging_job.py')}:job"
SAMPLES = 256
CEILING_S = 8
CEILINGS = (
    *("--heartbeat-timeout-s", "6", "--progress-timeout-s", str(CEILING_S)),
    *("--stall-timeout-s", str(CEILING_S), "--sample-log", "auto"),
)
PLACES = {1: "step", 2: "dataset", 3: "collate", 4: "scheduler"}
PHASES = {1: "training", 2: "data", 3: "data", 4: "training"}
"""What each rank is in; the scheduler is asked for each batch, before the step."""


def hangs(*words: str, **where: int) -> tuple[str, ...]:
    options = [word for name, rank in where.items() for word in ("--job-arg", f"{name}={rank}")]
    return (JOB, *CEILINGS, *options, *words)


def events(directory: Path, name: str) -> list[dict]:
    """The events of one name that the run has recorded."""
    found = {}
    for path in directory.joinpath("records").rglob("*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line).get("row") or {}
            if row.get("name") == name:
                found[row["seq"]] = row
    return [found[seq] for seq in sorted(found)]


def test_a_step_a_dataset_a_collate_and_a_scheduler_that_hang_are_named_and_evicted(launch):
    run = launch(*hangs("--ranks", "5", **{f"{place}_of": rank for rank, place in PLACES.items()}))
    for rank, phase in PHASES.items():
        alert = run.until_lost(rank)
        assert f"(ceiling {CEILING_S} s, phase {phase})" in alert
        assert "finished no batch for 8 s" in alert
    assert run.finish() == 0
    check_each_once(run.directory / "samples.jsonl", samples=SAMPLES, each_pass=SAMPLES, passes=1)
    stacks = {row["rank"]: row["text"] for row in events(run.directory, "stack")}
    waits = {
        (row.get("rank"), row["text"].split(", for")[0]) for row in events(run.directory, "wait")
    }
    for rank, place in PLACES.items():
        assert "hang_for_ever (hanging_job.py:" in stacks[rank]
        named = "__getitem__" if place == "dataset" else place
        assert f"{named} (hanging_job.py:" in stacks[rank]
        doing = "waiting for its data" if PHASES[rank] == "data" else "computing"
        assert (rank, f"rank {rank}: in a batch: {doing}") in waits
        record = json.loads(Path(f"{run.stem}.rank{rank}.death.json").read_text())
        assert record["kind"] == "evicted"
        assert f"phase {PHASES[rank]}" in record["error"]
    assert any("in a batch: waiting for its data" in text for text in run.texts("wait"))
    assert logged(run.directory, "launcher", "wait ")


@pytest.mark.parametrize("mode", ["cpu_cadence", "nccl_cadence"])
def test_a_step_that_hangs_while_the_others_average_without_it_costs_its_rank_only(launch, mode):
    samples, ceiling_s = 6_000, 18
    words = hangs("--ranks", "3", "--mode", mode, step_of=1, at=40, samples=samples)
    run = launch(*words, "--progress-timeout-s", str(ceiling_s), extra={STAND_IN: "1"})
    run.until_said("wait", "rank 1 on vm: in a batch: computing")
    # a save cuts the window, if the others have not found by now that this rank is late
    assert run.flodl("checkpoint").code == 0
    run.until_said("wait", "reduce: waiting for the average")
    alert = run.until_lost(1)
    assert f"finished no batch for {ceiling_s} s (ceiling {ceiling_s} s, phase training)" in alert
    assert run.finish() == 0
    check_each_once(run.directory / "samples.jsonl", samples=samples, each_pass=samples, passes=1)
    stacks = {row["rank"]: row["text"] for row in events(run.directory, "stack")}
    assert list(stacks) == [1]
    assert "step (hanging_job.py:" in stacks[1]
    assert run.summary["alerts"]["rank_lost"] == 1
    assert "reduce_stall" not in run.summary["alerts"]


@pytest.mark.parametrize("place", ["metric", "report"])
def test_an_evaluation_that_hangs_ends_the_run_with_the_last_commit(launch, place):
    run = launch(*hangs("--ranks", "1", **{f"{place}_of": -1}))
    assert run.finish(LONG_S) == 1
    assert meta_of(run.stem)["reason"] == "reduce_stall"
    assert meta_of(run.stem)["samples_trained"] == SAMPLES
    shown = run.until_said("wait", "callback: rank 0 evaluates epoch 1")
    assert "then the last commit is saved and the run ends" in shown
    alert = run.until_said("alert", "rank 0 evaluates epoch 1")
    assert f"(ceiling {CEILING_S} s)" in alert
    told = events(run.directory, "stack")[0]
    assert told["rank"] == 0
    assert "hang_for_ever (hanging_job.py:" in told["text"]
    assert f"{place} (hanging_job.py:" in told["text"]


def test_a_loader_worker_that_hangs_is_named_by_its_own_stack(launch):
    words = hangs("--ranks", "1", "--loader-workers", "2", "--seed", "1", bad_sample=9)
    run = launch(*words)
    alert = run.until_lost(0)
    assert "phase data" in alert
    assert run.finish(LONG_S) == 1
    assert run.summary["reason"] == "all_ranks_lost"
    told = events(run.directory, "stack")[0]
    assert "beside it wait (threading.py:" in told["text"]
    assert "hang_for_ever (hanging_job.py:" in told["text"]
    assert "__getitem__ (hanging_job.py:" in told["text"]
