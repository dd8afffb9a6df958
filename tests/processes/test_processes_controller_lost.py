"""A worker host whose launcher vanishes: one rank leaves what it has, and everything ends."""

import hashlib
import json
import signal
from pathlib import Path

import pytest
from aftermath import logged
from harness import SHORT_S
from process_table import await_ends
from safetensors import safe_open
from safetensors.numpy import load_file

pytestmark = [
    pytest.mark.processes,
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

WORDS = (
    *("synthetic", "--epochs", "1000", "--step-ms", "5", "--ranks", "1"),
    *("--job-arg", "samples=4000", "--job-arg", "batch_size=4", "--job-arg", "params=500"),
    *("--min-rank-start", "3", "--target-ranks", "3", "--heartbeat-timeout-s", "4"),
)


def start(launch):
    """A launcher with rank 0, and the guest with ranks 1 and 2; returns run and guest."""
    run = launch(*WORDS)
    run.until_said("note", "listens on", SHORT_S)
    guest = run.start_flodl(
        "join", run.address, "--host", "guest", "--ranks", "2", "--run-dir", "guest"
    )
    run.until_trained(1)
    return run, guest


def emergency_files(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*.emergency.*"))


def check_emergency(place: Path, rank: int) -> dict:
    """The one rank's file is whole and says what it is; returns what it says."""
    names = [f"consensus.rank{rank}.emergency.{end}" for end in ("json", "safetensors")]
    assert emergency_files(place) == names
    told = json.loads(next(place.rglob(names[0])).read_text())
    path = next(place.rglob(names[1]))
    assert told["is_consensus"] is False
    assert (told["reason"], told["rank"], told["host"]) == ("controller_lost", rank, "guest")
    assert told["version"] >= 1
    assert 0 <= told["samples_since_commit"] <= 4
    body = path.read_bytes()
    assert (told["sha256"], told["nbytes"]) == (hashlib.sha256(body).hexdigest(), len(body))
    with safe_open(path, "numpy") as file:
        assert file.metadata()["flodl.emergency"].startswith("not a consensus")
    assert sum(value.size for value in load_file(path).values()) >= 500
    return told


def test_the_lowest_rank_of_a_host_leaves_its_parameters_when_the_launcher_is_killed(launch):
    run, guest = start(launch)
    run.kill("launcher")
    said = guest.finish(SHORT_S)
    assert said.code == 7, said
    assert "the launcher is gone" in said.err
    run.await_all_gone(within_s=10)
    check_emergency(run.place, 1)


def test_the_next_rank_does_it_where_the_lowest_is_dead(launch):
    run, guest = start(launch)
    run.kill("rank1")
    run.until_lost(1)
    run.kill("launcher")
    assert guest.finish(SHORT_S).code == 7
    run.await_all_gone(within_s=10)
    check_emergency(run.place, 2)
    record = json.loads(next(run.place.rglob("consensus.rank1.death.json")).read_text())
    assert (record["kind"], record["signal"], record["host"]) == ("signal", "SIGKILL", "guest")


def test_a_launcher_that_is_stopped_is_gone_at_the_heartbeat_ceiling(launch):
    run, guest = start(launch)
    stopped = run.process("launcher")
    stopped.send(signal.SIGSTOP)
    assert guest.finish(SHORT_S).code == 7
    told = check_emergency(run.place, 1)
    assert told["error"]
    relay = next(run.place.rglob("guest-agent*/logs/relay.log")).parent.parent
    assert logged(relay, "relay", "has said nothing for 4 s")
    own = [one for one in run.processes().values() if one.name == "rank0"]
    assert not await_ends(own, SHORT_S)
    assert logged(run.directory, "rank0", "has said nothing for 4 s")
    stopped.send(signal.SIGKILL)
    run.await_all_gone(within_s=10)


def test_nothing_is_left_by_a_run_that_is_stopped_at_once(launch):
    run, guest = start(launch)
    assert run.flodl("stop", "--now").code == 0
    run.finish()
    assert guest.finish(SHORT_S).code in (0, 7)
    assert emergency_files(run.place) == []


def test_nothing_is_left_where_a_relay_ends_by_itself(launch):
    run, guest = start(launch)
    run.kill("relay guest")
    run.until_lost(1)
    run.signal(signal.SIGTERM)
    assert run.finish() == 4
    guest.finish(SHORT_S)
    assert emergency_files(run.place) == []
