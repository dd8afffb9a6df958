"""Files of ranks on their hosts: a resumed run ends with the bits of one that never stopped."""

import signal
from pathlib import Path

import pytest
from aftermath import meta_of
from harness import Launched
from safetensors.numpy import load_file

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(400)]

JOB = f"{Path(__file__).with_name('resuming_job.py')}:job"
WORLD = ("--hosts", "2", "--ranks-per-host", "1")


@pytest.fixture(scope="module", params=["cpu_sync", "cpu_cadence"])
def runs(request, launch_ahead) -> tuple[str, tuple[str, ...], Launched, Launched]:
    """Mode, its words, a run that was stopped in mid-pass, and one that never stopped."""
    words = () if request.param == "cpu_sync" else ("--mode", "cpu_cadence", "--pin-counts", "2,3")
    whole = launch_ahead(JOB, *WORLD, *words)
    stopped = launch_ahead(JOB, *WORLD, *words, "--job-arg", "pause_ms=40")
    stopped.until_trained(60)
    stopped.signal(signal.SIGTERM)
    assert stopped.finish() == 4
    assert whole.finish() == 0
    assert 0 < meta_of(stopped.stem)["samples_trained"] < 480
    return request.param, words, stopped, whole


def bits(run: Launched) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in load_file(f"{run.stem}.safetensors").items()}


def test_ranks_of_all_hosts_go_on_bit_by_bit(launch_ahead, runs) -> None:
    _, words, stopped, whole = runs
    again = launch_ahead(JOB, *WORLD, *words, "--resume", str(stopped.directory))
    assert again.finish() == 0
    again.check_quiet()
    assert not again.texts("alert")
    assert bits(again) == bits(whole)


def test_a_rank_whose_file_is_gone_is_named_and_begins_with_a_fresh_optimizer(
    launch_ahead, runs
) -> None:
    _, words, stopped, whole = runs
    path = next(stopped.directory.rglob("hosts/*/checkpoints/consensus.rank1.pt"))
    path.rename(path.with_suffix(".away"))
    again = launch_ahead(JOB, *WORLD, *words, "--resume", str(stopped.directory))
    alert = again.until_said("alert", "rank 1")
    assert "no file *.rank1.pt in" in alert
    assert again.finish() == 0
    path.with_suffix(".away").rename(path)
    assert bits(again) != bits(whole)
