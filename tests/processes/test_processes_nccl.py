"""Real runs whose ranks average among themselves, on the stand-in for NVIDIA's library.

Rank processes are the real ones; only the collective is exchanged. What GPUs show beyond
that is in `tests/bench/gpu`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from aftermath import check_each_once, logged, meta_of, sample_counts
from harness import Launched
from safetensors.torch import load_file

from flodl_core.recipes.synthetic import SyntheticModel
from flodl_core.roles.stand_in import STAND_IN

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(300)]

SAMPLES, BATCH, PARAMS = 1_600, 4, 500
JOB = (
    *("synthetic", "--sample-log", "auto", "--seed", "3", "--epochs", "2"),
    *("--job-arg", f"samples={SAMPLES}", "--job-arg", f"batch_size={BATCH}"),
    *("--job-arg", f"params={PARAMS}"),
)
Start = Callable[..., Launched]


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> Iterator[Start]:
    runs: list[Launched] = []

    def begin(*words: str) -> Launched:
        place = tmp_path / f"run{len(runs)}"
        place.mkdir()
        runs.append(Launched(place, *words, extra={STAND_IN: "1"}))
        return runs[-1]

    yield begin
    for run in runs:
        run.destroy()


def values_of(stem: Path) -> dict[str, torch.Tensor]:
    """The bundle, which loads strictly and is finite."""
    saved = load_file(f"{stem}.safetensors")
    SyntheticModel(params=PARAMS, buffers=64).load_state_dict(saved, strict=True)
    assert all(value.isfinite().all() for value in saved.values())
    return saved


def trained_now(run: Launched) -> int:
    return int(run.document["training"]["samples_done"])


@pytest.mark.long
def test_either_plane_trains_the_same_parameters(start: Start) -> None:
    """With pinned counts the two planes sum the same values, in an order of their own."""
    words = (*JOB, "--ranks", "2", "--pin-counts", "6,2", "--step-ms", "1")
    runs = [start(*words, "--mode", mode) for mode in ("nccl_cadence", "cpu_cadence")]
    for run in runs:
        assert run.finish() == 0
        run.check_quiet()
        check_each_once(
            run.directory / "samples.jsonl", samples=SAMPLES, each_pass=SAMPLES, passes=2
        )
    ours, theirs = (values_of(run.stem) for run in runs)
    syncs = meta_of(runs[0].stem)["sync_round"]
    assert syncs == meta_of(runs[1].stem)["sync_round"]
    for name, value in theirs.items():
        if value.is_floating_point():
            apart = torch.linalg.vector_norm((ours[name] - value).double())
            assert apart <= syncs * 1e-6 * torch.linalg.vector_norm(value.double()), name
        else:
            assert torch.equal(ours[name], value), name
    assert runs[0].document["run"]["mode"] == "nccl_cadence"


@pytest.mark.chaos
@pytest.mark.parametrize("mode", ["nccl_cadence", "nccl_sync"])
def test_ranks_that_are_killed_until_one_is_left(start: Start, mode: str) -> None:
    """Two go on, every sample is trained once at most, and the last one is saved."""
    words = ("--epochs", "100000", "--ranks", "3", "--step-ms", "5", "--nccl-interface", "lo")
    run = start(*JOB, *words, "--mode", mode)
    run.until_trained(SAMPLES)
    environment = Path(f"/proc/{run.process('rank1').pid}/environ").read_bytes().split(b"\0")
    assert b"NCCL_SOCKET_IFNAME=lo" in environment
    run.kill("rank1")
    alert = run.until_lost(1)
    assert "SIGKILL" in alert
    run.until_trained(trained_now(run) + SAMPLES)
    assert logged(run.directory, "rank0", "place 0 of 2")
    assert logged(run.directory, "rank2", "place 1 of 2")
    run.kill("rank0")
    assert run.finish() == 4
    run.check_quiet()
    values_of(run.stem)
    meta = meta_of(run.stem)
    assert meta["reason"] == "single_survivor"
    assert meta["ranks_alive"] == 1
    counts = sample_counts(run.directory / "samples.jsonl")
    assert all(set(of_pass.values()) == {1} for of_pass in counts.values())
    whole = [of_pass for number, of_pass in counts.items() if number < max(counts)]
    assert all(len(of_pass) == SAMPLES for of_pass in whole)
    assert sum(map(len, counts.values())) == meta["samples_trained"]


def test_a_rank_without_a_gpu_is_told_so(tmp_path: Path) -> None:
    run = Launched(tmp_path, *JOB, "--ranks", "2", "--mode", "nccl_sync")
    try:
        assert run.finish() == 2
        assert "cpu:0" in run.error["text"]
        assert "cpu_cadence" in str(run.error)
    finally:
        run.destroy()
