"""A host that is there for every run: five in a row, and no run sees anything of the one before."""

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import LONG_S, SHORT_S, Beside, Launched, environment
from process_table import find_processes, look_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

RUNS = 5
PATIENCE = {"FLODL_NET_TIMEOUT_SCALE": "0.2", "FLODL_AGENT_INSPECT_TIMEOUT_S": "600"}
"""Pauses of one second instead of five."""
WORDS = ("--ranks", "1", "--require-token", "--min-rank-start", "2", "--target-ranks", "2")


class Fleet:
    """One persisting host, and the runs that it finds at one port with one token."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.mark = uuid.uuid4().hex
        self.token = base / "token"
        self.secret = uuid.uuid4().hex
        self.token.write_text(self.secret)
        place = base / "host"
        place.mkdir()
        self.runs: list[Launched] = []
        self.port = _free_port()
        self.host = Beside(
            place,
            *("join", f"127.0.0.1:{self.port}", "--persist", "--token-file", str(self.token)),
            *("--host", "blue", "--devices", "cpu"),
            env={**environment(place, self.mark), **PATIENCE},
        )

    def launch(self, *words: str) -> Launched:
        place = self.base / f"run{len(self.runs)}"
        place.mkdir()
        run = Launched(
            place,
            *("synthetic", *WORDS, *words),
            port=self.port,
            extra={"FLODL_TOKEN": self.secret},
        )
        self.runs.append(run)
        return run

    def process(self, name: str) -> int:
        """The id of one of the host's processes."""
        found = look_until(
            lambda: [one for one in find_processes(self.mark) if one.name == name], SHORT_S
        )
        assert found, [str(one) for one in find_processes(self.mark)]
        return found[0].pid

    def destroy(self) -> None:
        for run in self.runs:
            run.destroy()
        for one in find_processes(self.mark):
            one.send(signal.SIGKILL)
        self.host.destroy()


def _free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A host that waits for runs."""
    made = Fleet(tmp_path)
    yield made
    made.destroy()


def test_the_host_gets_into_five_runs_in_a_row_by_itself(fleet: Fleet) -> None:
    seen = set()
    for _ in range(RUNS):
        run = fleet.launch("--epochs", "1")
        assert run.finish(LONG_S) == 0, run.story()
        assert [row["host"] for row in run.summary["ranks"]][1] == "blue"
        assert run.summary["samples_trained"] == 2048
        seen.add(run.document["run"]["id"])
    assert len(seen) == RUNS
    assert {one.name for one in find_processes(fleet.mark)} <= {"agent blue", "relay blue", "rank1"}


def test_a_stopped_host_of_one_run_never_enters_the_next_as_it_was(fleet: Fleet) -> None:
    first = fleet.launch("--epochs", "100000")
    first.until_trained(64, LONG_S)
    old = {one.pid: one for one in find_processes(fleet.mark)}
    stale = [one for one in old.values() if one.name != "agent blue"]
    assert {one.name for one in stale} == {"relay blue", "rank1"}
    for one in old.values():
        one.send(signal.SIGSTOP)
    first.signal(signal.SIGKILL)
    first.await_all_gone(SHORT_S)

    second = fleet.launch("--epochs", "100000")
    second.until_phase("waiting", SHORT_S)
    second.until_said("joined", "rank 0", LONG_S)
    for one in old.values():
        one.send(signal.SIGCONT)
    second.until_trained(64, LONG_S)
    assert [one["host"] for one in second.document["members"]][1] == "blue"
    assert len(second.document["members"]) == 2
    assert not second.document["refusals"], "nothing of the first run knocked at the second"
    fresh = fleet.process("rank1")
    assert fresh not in old, "the rank of the second run is a process of its own"
    assert not [str(one) for one in stale if one.is_alive()]
    second.signal(signal.SIGTERM)
    assert second.finish(LONG_S) == 4, second.story()
