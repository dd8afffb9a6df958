"""A real run, launched from the form in a terminal, outlives the console; another one ends it."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from console_terminal import Terminal, terminal_with

from flodl_console.run_form import FORM_FIELDS
from flodl_core.telemetry.run_directory import RunDirectory, list_runs
from flodl_core.telemetry.state import StateDocument, read_document_untrusted
from flodl_core.telemetry.summary import RunSummary

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(180)]

FLODL = (sys.executable, "-P", "-m", "flodl_core.cli.main")


def state_of(run: RunDirectory) -> StateDocument:
    port = run.read_port()
    answer = httpx.get(f"http://127.0.0.1:{port}/state.json", trust_env=False, timeout=10)
    return read_document_untrusted(answer.content)


def until(term: Terminal, is_so: Callable[[], bool], *, limit_s: float = 60.0) -> None:
    """Read what is drawn until something is so."""
    ends_at = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < ends_at, term.seen[-2000:]
        term.forget()


def test_a_run_is_launched_outlives_its_console_and_is_stopped_by_another(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    launch = (*FLODL, "console", "synthetic", "--port", "0", "--ranks", "2", "--epochs", "5000")
    with terminal_with(launch, directory=tmp_path) as term:
        term.read_until(b"Launch")
        for _ in range(len(FORM_FIELDS) + 1):
            term.send(b"\r")
            term.forget()
        until(term, lambda: any(run.is_live() for run in list_runs(runs)))
        (run,) = list_runs(runs)
        until(term, lambda: run.read_port() is not None)
        until(term, lambda: (state := state_of(run)).phase == "training" and bool(state.training))
        os.kill(term.process.pid, signal.SIGKILL)
        term.process.wait(timeout=10)
    before = state_of(run).run.uptime_s
    with terminal_with((*FLODL, "console"), directory=tmp_path) as term:
        term.read_until("● live".encode())
        until(term, lambda: state_of(run).run.uptime_s > before)
        term.send(b"x")
        term.read_until(b"to do it")
        time_of_deafness = time.monotonic() + 0.4
        until(term, lambda: time.monotonic() > time_of_deafness)
        term.send(b"synthetic\r")
        until(term, lambda: not run.is_live())
        term.send(b"q")
        code, took_s = term.wait()
        assert code == 0
        assert took_s < 3.0
        term.assert_clean()
    summary = RunSummary.model_validate_json((run.path / "summary.json").read_bytes())
    assert summary.exit_code == 4
