"""Real runs whose ranks train on while they are averaged: samples, evaluation, stop, kills."""

import signal
from collections import Counter

import pytest
import torch
from aftermath import check_each_once, meta_of, sample_counts
from harness import Launched
from safetensors.torch import load_file

from flodl_core.recipes.synthetic import SyntheticModel, SyntheticSamples, mean_squared_error

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

BATCH, PARAMS = 4, 500
ASYNC = (
    *("synthetic", "--mode", "cpu_async", "--sample-log", "auto", "--seed", "3"),
    *("--job-arg", f"batch_size={BATCH}", "--job-arg", f"params={PARAMS}"),
)


def check_whole(run: Launched, samples: int, passes: int = 1) -> None:
    check_each_once(
        run.directory / "samples.jsonl", samples=samples, each_pass=samples, passes=passes
    )
    assert run.summary["samples_trained"] == passes * samples
    assert run.summary["samples_dropped"] == 0


def elche(run: Launched) -> dict[str, object]:
    found: dict[str, object] = run.document.get("elche") or {}
    return found


def score(run: Launched, samples: int) -> float:
    """The metric of the saved consensus, computed here."""
    model = SyntheticModel(params=PARAMS, buffers=64)
    model.load_state_dict(load_file(f"{run.stem}.safetensors"))
    data = SyntheticSamples(min(samples, 256))
    batch = [torch.stack(part) for part in zip(*(data[i] for i in range(len(data))), strict=True)]
    with torch.no_grad():
        return mean_squared_error(model.eval(), [(batch[0], batch[1])], torch.device("cpu"))


def test_unequal_ranks_on_two_hosts_train_every_sample_once_and_the_average_is_scored(
    launch,
) -> None:
    samples, passes = 4_800, 2
    run = launch(
        *(*ASYNC, "--hosts", "2", "--ranks-per-host", "2", "--epochs", str(passes)),
        *("--job-arg", f"samples={samples}", "--step-ms", "8,8,8,60"),
    )
    run.until("counts by speed", lambda: elche(run).get("phase") == "stable")
    state = run.fetch_state()
    assert state["run"]["mode"] == "cpu_async"
    assert state["elche"]["anchor_rank"] == 3
    assert 3 <= state["elche"]["overshoot"] <= 15
    assert run.finish() == 0
    run.check_quiet()
    check_whole(run, samples, passes)
    assert run.summary["alerts"] == {}
    batches = [row["batches"] for row in run.summary["ranks"]]
    assert min(batches[:3]) > 2 * batches[3] > 0
    assert run.summary["epochs"][-1]["metric"] == pytest.approx(score(run, samples), rel=1e-4)


@pytest.mark.chaos
def test_a_run_that_is_stopped_comes_to_rest_and_goes_on_with_what_is_left(launch) -> None:
    samples = 4_000
    words = (*ASYNC, "--ranks", "2", "--epochs", "1", "--job-arg", f"samples={samples}")
    first = launch(*words, "--step-ms", "5,20", "--checkpoint-every-s", "0.5")
    first.until_said("saved", "version")
    first.until_trained(1_200)
    first.signal(signal.SIGTERM)
    assert first.finish() == 4
    first.check_quiet()
    meta = meta_of(first.stem)
    uncovered = meta["coverage"]["per_epoch"][0]["uncovered_ranges"]
    assert sum(size for _, size in uncovered) == samples - meta["samples_trained"] > 0
    again = launch(*words, "--resume", str(first.directory))
    assert again.finish() == 0
    again.check_quiet()
    together: Counter[int] = Counter()
    for run in (first, again):
        together.update(sample_counts(run.directory / "samples.jsonl")[0])
    assert together == Counter(range(samples))


@pytest.mark.chaos
def test_ranks_that_are_killed_while_they_train_and_while_they_are_averaged(launch) -> None:
    """With a model this large and windows this short an average is nearly always under way."""
    samples = 3_200
    run = launch(
        *("synthetic", "--mode", "cpu_async", "--sample-log", "auto", "--seed", "3"),
        *("--hosts", "2", "--ranks-per-host", "2", "--epochs", "1", "--step-ms", "10,10,10,40"),
        *("--job-arg", f"samples={samples}", "--job-arg", f"batch_size={BATCH}"),
        *("--job-arg", "params=2000000", "--anchor", "2", "--max-anchor", "2"),
    )
    run.until_trained(1)
    run.until("an average", lambda: run.fetch_state()["reduce"]["state"] == "pending")
    run.kill("rank1")
    run.until_lost(1)
    run.until_trained(int(run.document["training"]["samples_done"]) + 40 * BATCH)
    run.kill("rank2")
    run.until_lost(2)
    assert run.finish() == 0
    run.check_quiet()
    check_each_once(run.directory / "samples.jsonl", samples=samples, each_pass=samples, passes=1)
    assert run.summary["samples_trained"] == samples
    assert run.summary["alerts"] == {"rank_lost": 2}
    assert [row["state"] for row in run.summary["ranks"]] == ["done", "lost", "lost", "done"]
