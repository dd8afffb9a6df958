"""Runs in which nothing goes wrong: what they leave is exact, and nothing else is left."""

import json
import re
from pathlib import Path

import pytest
import torch
from aftermath import check_each_once, logged, meta_of
from harness import Launched
from process_table import listening_ports
from safetensors.torch import load_file

from flodl_core.recipes.synthetic import SyntheticModel

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

SAMPLES, BATCH, PASSES, PARAMS = 1_003, 8, 2, 2_000
WHOLE = SAMPLES - SAMPLES % BATCH
TAIL = SAMPLES - WHOLE
SHAPE = (f"samples={SAMPLES}", f"batch_size={BATCH}", f"epochs={PASSES}", f"params={PARAMS}")
WORDS = (
    "synthetic",
    *(word for one in SHAPE for word in ("--job-arg", one)),
    "--sample-log",
    "auto",
)
QUIET_BYTES = 120 * 10**6
"""What launcher, agent and relay may hold beyond the model."""


def tensors(stem: Path) -> dict[str, torch.Tensor]:
    return load_file(f"{stem}.safetensors")


def check_processes(run: Launched) -> None:
    """While it trains: one port, and no tensor library where no tensor is trained."""
    found = run.processes()
    host = run.document["members"][0]["host"]
    remote = f"{host}-1"
    ranks = {f"rank{rank}" for rank in range(4)}
    quiet = {"launcher", f"agent {remote}", f"relay {remote}"}
    assert set(found) == ranks | quiet
    assert listening_ports(one.pid for one in found.values()) == {run.port}
    for name in ranks:
        assert "libtorch" in found[name].maps()
    for name in quiet:
        assert "libtorch" not in found[name].maps()
        assert found[name].status_kb("VmHWM") * 1024 < QUIET_BYTES


def check_document(run: Launched) -> None:
    """While it trains: the document says who takes part and how far they are."""
    state = run.fetch_state()
    assert state["phase"] == "training"
    assert [row["rank"] for row in state["ranks"]] == [0, 1, 2, 3]
    assert state["training"]["samples_total"] == PASSES * WHOLE
    assert {member["address"].rpartition(":")[0] for member in state["members"]} == {"127.0.0.1"}
    token = run.token_file.read_text().strip()
    assert token not in json.dumps(state)


def check_summary(run: Launched) -> None:
    """After it: what was printed is what was written, and both are true."""
    summary = run.summary
    assert json.loads((run.directory / "summary.json").read_text()) == summary
    assert summary["exit_code"] == 0
    assert summary["world_size"] == 4
    assert summary["hosts"] == 2
    assert summary["samples_trained"] == PASSES * WHOLE
    assert summary["samples_dropped"] == 0
    assert summary["samples_tail"] == PASSES * TAIL
    batches = WHOLE // BATCH
    assert summary["global_step"] == PASSES * batches
    assert summary["syncs"] == PASSES * -(-batches // 4)
    assert [row["samples"] for row in summary["epochs"]] == [WHOLE] * PASSES
    assert summary["loss"] > 0
    assert summary["metric_name"] == "mse"
    assert 0 < summary["metric"] < 1
    ranks = summary["ranks"]
    assert [row["state"] for row in ranks] == ["done"] * 4
    assert sum(row["samples"] for row in ranks) == summary["samples_trained"]
    assert sum(row["share"] for row in ranks) == pytest.approx(1)
    assert sum(row["weight"] for row in ranks) == pytest.approx(1)
    assert summary["alerts"] == {}


def check_bundle(run: Launched) -> dict[str, torch.Tensor]:
    """The bundle loads strictly, is finite, and its meta file is of the last commit."""
    saved = tensors(run.stem)
    model = SyntheticModel(params=PARAMS, buffers=64)
    assert set(saved) == set(model.state_dict())
    model.load_state_dict(saved, strict=True)
    assert all(value.isfinite().all() for value in saved.values())
    meta = meta_of(run.stem)
    assert meta["sync_round"] == run.summary["syncs"]
    assert meta["samples_trained"] == run.summary["samples_trained"]
    assert meta["world_size"] == 4
    assert (meta["reason"], meta["epoch"]) == ("graceful_shutdown", PASSES)
    assert meta["coverage"]["per_epoch"] == []
    return saved


@pytest.fixture(scope="module")
def runs(launch_ahead) -> dict[str, Launched]:
    """Runs that end by themselves."""
    far = (*WORDS, "--hosts", "2", "--ranks-per-host", "2", "--seed", "7")
    split = (*WORDS, "--step-ms", "0,4,8,1,2", "--epoch-splits", "2")
    return {
        "uneven": launch_ahead(*far, "--step-ms", "0,5,15,30"),
        "even": launch_ahead(*far),
        "1 rank": launch_ahead(*split, "--ranks", "1"),
        "5 ranks": launch_ahead(*split, "--ranks", "5", "--bind", "::"),
    }


def test_two_runs_of_two_hosts_leave_the_same_bits_and_nothing_else(runs) -> None:
    uneven, even = runs["uneven"], runs["even"]
    uneven.until_trained(1)
    check_processes(uneven)
    check_document(uneven)
    assert uneven.finish() == 0
    uneven.check_quiet()
    check_summary(uneven)
    first = check_bundle(uneven)
    check_each_once(
        uneven.directory / "samples.jsonl", samples=SAMPLES, each_pass=WHOLE, passes=PASSES
    )
    assert any(re.search(rf"\b{TAIL} samples?\b", text) for text in uneven.texts("note"))
    assert logged(uneven.directory, "launcher", "coordinator_ended")

    assert even.finish() == 0
    second = check_bundle(even)
    for name, value in first.items():
        if name != "batches_seen":
            assert value.numpy().tobytes() == second[name].numpy().tobytes(), name
    assert even.summary["metric"] == uneven.summary["metric"]


@pytest.mark.parametrize("ranks", [1, 5])
def test_each_sample_is_trained_once_whatever_the_number_of_ranks(runs, ranks: int) -> None:
    run = runs["1 rank" if ranks == 1 else f"{ranks} ranks"]
    assert run.finish() == 0
    run.check_quiet()
    halves = [SAMPLES // 2, SAMPLES - SAMPLES // 2]
    whole = sum(half - half % BATCH for half in halves)
    check_each_once(
        run.directory / "samples.jsonl", samples=SAMPLES, each_pass=whole, passes=PASSES
    )
    assert run.summary["samples_trained"] == PASSES * whole
    assert run.summary["samples_tail"] == PASSES * (SAMPLES - whole)
    assert [row["state"] for row in run.summary["ranks"]] == ["done"] * ranks
