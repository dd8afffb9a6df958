"""Runs under an outer optimizer: told to everybody, saved, and gone on with bit by bit."""

import signal
from pathlib import Path

import numpy as np
import pytest
from aftermath import meta_of
from harness import Launched
from safetensors.numpy import load_file

from flodl_core.roles.stand_in import STAND_IN

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(400)]

JOB = ("synthetic", "--job-arg", "samples=4096", "--epochs", "2", "--ranks", "2")
NESTEROV = (*JOB, "--mode", "cpu_cadence", "--pin-counts", "3,5", "--outer", "nesterov")
SLOWMO = (*JOB, "--mode", "cpu_sync", "--outer", "slowmo", "--outer-lr", "0.9")
ON_NCCL = (*NESTEROV, "--mode", "nccl_cadence")
SAVING = ("--checkpoint-every-s", "0.5", "--step-ms", "15")


def tensors(stem: Path, suffix: str) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in load_file(f"{stem}{suffix}").items()}


def launched(launch_ahead, *words: str) -> Launched:
    """A run; one on NCCL has the stand-in of machines without GPUs."""
    return launch_ahead(*words, extra={STAND_IN: "1"} if "nccl_cadence" in words else {})


def stopped_run(launch_ahead, words: tuple[str, ...]) -> Launched:
    """A run that was stopped, and saved, while its first pass was under way."""
    run = launched(launch_ahead, *words, *SAVING)
    run.until_trained(600)
    run.until("a save", lambda: bool(list(run.directory.glob("checkpoints/*.meta.json"))))
    run.signal(signal.SIGTERM)
    assert run.finish() == 4
    return run


@pytest.mark.parametrize(
    "words", [NESTEROV, SLOWMO, ON_NCCL], ids=["nesterov", "slowmo", "on_nccl"]
)
def test_a_stop_changes_no_bit_of_parameters_or_velocity(launch_ahead, words) -> None:
    whole = launched(launch_ahead, *words)
    run = stopped_run(launch_ahead, words)
    again = launched(launch_ahead, *words, "--resume", str(run.directory))
    assert (again.finish(), whole.finish()) == (0, 0)
    for suffix in (".safetensors", ".outer.safetensors"):
        assert tensors(again.stem, suffix) == tensors(whole.stem, suffix)
    moving = load_file(f"{whole.stem}.outer.safetensors")
    assert all(np.abs(one).max() > 0 for one in moving.values())
    kind = words[words.index("--outer") + 1]
    assert whole.document["reduce"]["outer"] == kind
    assert meta_of(whole.stem)["outer"] == {
        "kind": kind,
        "lr": 0.9 if words is SLOWMO else 0.7,
        "momentum": 0.9,
        "steps_next": True,
    }
    assert not again.texts("alert")


def test_either_plane_steps_to_the_same_parameters(launch_ahead) -> None:
    """The planes sum in orders of their own; steps may lengthen what that makes ten times."""
    runs = [launched(launch_ahead, *words) for words in (NESTEROV, ON_NCCL)]
    assert [run.finish() for run in runs] == [0, 0]
    syncs = meta_of(runs[0].stem)["sync_round"]
    assert meta_of(runs[1].stem)["sync_round"] == syncs
    for suffix in (".safetensors", ".outer.safetensors"):
        ours, theirs = (load_file(f"{run.stem}{suffix}") for run in reversed(runs))
        for name, value in theirs.items():
            apart = np.linalg.norm((ours[name] - value).astype(float))
            assert apart <= 10 * syncs * 1e-6 * max(np.linalg.norm(value.astype(float)), 1.0), name


def test_another_rule_goes_on_from_the_parameters_and_says_so(launch_ahead) -> None:
    run = stopped_run(launch_ahead, SLOWMO)
    resumed = ("--resume", str(run.directory))
    plain = launch_ahead(*JOB, "--mode", "cpu_sync", *resumed)
    assert plain.finish() == 0
    assert any("outer avg now, slowmo at the save" in text for text in plain.texts("note"))
    assert not Path(f"{plain.stem}.outer.safetensors").exists()
    (run.stem.parent / "consensus.outer.safetensors").unlink()
    again = launch_ahead(*SLOWMO, *resumed)
    assert again.finish() == 0
    told = "the outer velocity begins at 0: consensus.outer.safetensors is missing"
    assert any(told in text for text in again.texts("note"))
