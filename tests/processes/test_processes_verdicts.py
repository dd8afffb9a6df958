"""Real runs and their verdicts: a rank that learns too fast, a guard that fails, evaluations."""

from pathlib import Path

import pytest
from aftermath import check_each_once, meta_of
from harness import Launched

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(240)]

JOB = f"{Path(__file__).with_name('guarded_job.py')}:job"
GUARD = f"{Path(__file__).with_name('failing_guard.py')}:Failing"
CADENCE = ("--mode", "cpu_cadence", "--ranks", "2", "--sample-log", "auto")


def job(**args: object) -> list[str]:
    return [JOB, *(word for key, value in args.items() for word in ("--job-arg", f"{key}={value}"))]


def _divergences(run: Launched) -> list[float]:
    """What each rank's values were apart by, in every document so far."""
    documents = [row["state"] for row in run.rows if row["event"] == "state"]
    return [rank["divergence"] or 0.0 for state in documents for rank in state["ranks"]]


def test_thirty_times_the_learning_rate_on_one_rank_is_held_back_and_told(launch) -> None:
    many_windows = ("--overhead-target", "0.02", "--max-anchor", "60")
    run = launch(*job(factor=30, epochs=100), *CADENCE, *many_windows)
    run.until("a drift alert", lambda: bool(run.texts("alert")))
    (alert, *_) = run.texts("alert")
    assert "drift" in alert
    assert "divergence rose three cycles in a row" in alert or "the anchor shrank" in alert
    run.until("values apart", lambda: max(_divergences(run), default=0.0) > 0.05)
    assert run.flodl("stop").code == 0
    assert run.finish() == 4
    assert run.summary["alerts"].keys() == {"drift"}
    assert meta_of(run.stem)["elche"]["guard"] == "level"


def test_a_guard_that_raises_and_then_never_answers_is_named_and_costs_no_sample(launch) -> None:
    words = ("--guard", GUARD, "--guard-timeout-s", "0.1", "--max-anchor", "20")
    run = launch(*job(samples=8000), *CADENCE, *words)
    assert run.finish() == 0
    run.check_quiet()
    check_each_once(run.directory / "samples.jsonl", samples=8000, each_pass=8000, passes=1)
    first, last = run.texts("alert")
    assert "guard failing: it raised ValueError: no idea about" in first
    assert "guard failing: it gave no answer in" in last
    assert "it is asked no more" in last
    assert run.summary["alerts"] == {"guard_failed": 2}
    assert run.document["elche"]["guard"] == "failing"
    assert run.document["elche"]["guard_failures"] == 4
    assert run.document["elche"]["last_verdict"] == "stable"


def test_a_guard_that_cannot_be_had_starts_nothing(launch) -> None:
    run = launch(*job(), *CADENCE, "--guard", "no_such_module:Guard")
    assert run.finish() == 2
    assert "cannot be had (ModuleNotFoundError" in run.error["text"]


def test_a_chosen_rank_evaluates_every_second_epoch_beside_training(launch) -> None:
    words = (*job(samples=1600, epochs=3, eval_s=0.5), *CADENCE, "--callback-rank", "rank:1")
    run = launch(*words, "--eval-every", "2")
    assert run.finish() == 0
    run.check_quiet()
    check_each_once(run.directory / "samples.jsonl", samples=1600, each_pass=1600, passes=3)
    metrics = [row["metric"] for row in run.document["epochs"]]
    assert metrics[0] is None
    assert None not in metrics[1:]
    assert run.summary["alerts"].keys() <= {"drift"}
