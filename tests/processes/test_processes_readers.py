"""Whoever reads what a run prints may stop reading: a stopped terminal, a paused pager."""

import time

import pytest
from harness import SHORT_S

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(240)]

HEARTBEAT_S = 5.0
WORDS = ("synthetic", "--epochs", "100000", "--job-arg", "params=100", "--step-ms", "50")


def test_a_reader_who_stops_reading_costs_the_run_nothing(launch) -> None:
    """Twice the ceiling for a silent controller passes while nobody takes a byte."""
    run = launch(
        *(*WORDS, "--ranks", "2"),
        *("--heartbeat-timeout-s", f"{HEARTBEAT_S:g}", "--heartbeat-interval-s", "0.5"),
    )
    run.until_trained(1)
    before = run.document["training"]["samples_done"]
    run.stop_reading()
    since = time.monotonic()
    while time.monotonic() - since < 2 * HEARTBEAT_S:
        state = run.fetch_state()
        assert state["phase"] == "training"
    assert state["training"]["samples_done"] > before
    assert [row["state"] for row in state["ranks"]].count("lost") == 0
    assert run.flodl("stop").code == 0
    run.read_on()
    assert run.finish(SHORT_S) == 4
    run.check_quiet()
    assert run.summary["reason"] == "stopped"
    assert run.summary["alerts"] == {}
