"""Processes of a real run that are stopped and answer nothing: each ceiling has its outcome."""

import platform
import signal

import pytest
from aftermath import check_each_once
from harness import SHORT_S
from process_table import await_ends

pytestmark = [
    pytest.mark.processes,
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

HOST = platform.node()
SAMPLES, PASSES = 1_600, 2
WORDS = (
    *("synthetic", "--sample-log", "auto", "--epochs", str(PASSES), "--step-ms", "5"),
    *("--job-arg", f"samples={SAMPLES}", "--job-arg", "batch_size=4", "--job-arg", "params=500"),
    *("--heartbeat-timeout-s", "4"),
)


def check_whole(run) -> None:
    check_each_once(
        run.directory / "samples.jsonl", samples=SAMPLES, each_pass=SAMPLES, passes=PASSES
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_frozen_rank_is_lost_at_the_heartbeat_ceiling_and_ended(launch, rank: int) -> None:
    run = launch(*WORDS, "--hosts", "2", "--ranks-per-host", "1")
    run.until_trained(1)
    frozen = run.process(f"rank{rank}")
    frozen.send(signal.SIGSTOP)
    alert = run.until_lost(rank, SHORT_S)
    assert "silent for 4 s (ceiling 4 s)" in alert
    assert run.finish() == 0
    run.check_quiet()
    check_whole(run)
    assert not await_ends([frozen], 0)


def test_a_frozen_relay_loses_its_host_and_is_named(launch) -> None:
    run = launch(*WORDS, "--hosts", "2", "--ranks-per-host", "2")
    run.until_trained(1)
    run.kill(f"relay {HOST}-1", number=signal.SIGSTOP)
    alerts = [run.until_lost(rank, SHORT_S) for rank in (2, 3)]
    assert all(f"{HOST}-1" in alert and "silent for" in alert for alert in alerts)
    named = f"like every rank of {HOST}-1: its relay or link is down"
    assert any(named in alert for alert in alerts)  # the other one may have burned a moment longer
    assert run.finish() == 0
    run.check_quiet()
    check_whole(run)


def test_a_frozen_agent_holds_nobody_up(launch) -> None:
    run = launch(*WORDS, "--hosts", "2", "--ranks-per-host", "1")
    run.until_trained(1)
    run.kill(f"agent {HOST}-1", number=signal.SIGSTOP)
    assert run.finish() == 0
    run.check_quiet()
    check_whole(run)
    assert run.summary["alerts"] == {}
