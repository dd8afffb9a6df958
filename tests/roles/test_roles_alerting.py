"""The user's own command for alerts: what it is told, its time, and that nothing of it is left."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from flodl_core.ids import HostName
from flodl_core.net import clock
from flodl_core.roles.alerting import MAX_WAITING_COMMANDS, AlertDesk, EventCommand
from flodl_core.roles.history import RunHistory
from flodl_core.roles.run_story import RunStory
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.telemetry.recorder import RunRecorder

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]

FAILED = "on_event_failed"
BEGIN = 'if [ "$FLODL_CHILD_EVENT" = rank_lost ]; then echo > "$PLACE/begun"; fi; '
"""Ends when somebody reads that a command for a lost rank has begun."""
UP_S = 20.0
"""For a command to begin on a busy machine."""


@pytest.fixture
def log(tmp_path):
    log = ProcessLog(tmp_path / "log", host="red", process="launcher", utc_iso=clock.utc_iso)
    yield log
    log.close()


def desk_of(place: Path, log: ProcessLog, command: str, **given) -> AlertDesk:
    journal = Journal(place / "records", utc_iso=clock.utc_iso)
    story = RunStory(RunHistory(RunRecorder(journal), secrets=("x" * 32,)))
    env = {"PATH": os.environ["PATH"], "PLACE": str(place)}
    os.mkfifo(place / "begun")
    wanted = EventCommand(command=BEGIN + command, classes=("rank_lost",), env=env, **given)
    return AlertDesk(log, journal, story, command=wanted)


async def until_begun(place: Path) -> None:
    with anyio.fail_after(UP_S):
        await anyio.to_thread.run_sync((place / "begun").read_text, abandon_on_cancel=True)


async def told(desk: AlertDesk, place: Path) -> dict[str, str]:
    """One alert that the command wants, one that it does not, and the end of the run."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.run_commands)
        desk.raise_alert("rank_lost", "rank 1 was lost")
        desk.raise_alert("drift", "values drift")
        await until_begun(place)
        await desk.finish(0, "finished")
    return {row.alert_class: row.detail for row in desk.rows()}


async def test_a_command_gets_the_alerts_it_wants_and_the_end(tmp_path, log):
    desk = desk_of(tmp_path, log, 'cat > "$PLACE/$FLODL_CHILD_EVENT"')
    alerts = await told(desk, tmp_path)
    assert json.loads((tmp_path / "rank_lost").read_text())["detail"] == "rank 1 was lost"
    assert "exit code 0" in (tmp_path / "run_ended").read_text()
    assert not (tmp_path / "drift").exists()
    assert FAILED not in alerts


async def test_a_command_that_fails_is_an_alert_which_runs_no_command(tmp_path, log):
    alerts = await told(desk_of(tmp_path, log, 'echo x >> "$PLACE/runs"; exit 7'), tmp_path)
    assert "ended with 7; it was told of rank_lost" in alerts[FAILED]
    assert len((tmp_path / "runs").read_text().split()) == 2  # the loss and the end


async def test_a_command_that_a_signal_ends_fails_with_the_code_of_a_shell(tmp_path, log):
    alerts = await told(desk_of(tmp_path, log, "kill -TERM $$"), tmp_path)
    assert "ended with 143; it was told of rank_lost" in alerts[FAILED]


async def test_a_command_that_hangs_is_killed_with_all_that_it_started(tmp_path, log):
    hanging = 'sleep 1000 & echo $! >> "$PLACE/pids"; wait'
    alerts = await told(desk_of(tmp_path, log, hanging, timeout_s=3.0), tmp_path)
    assert "did not end in 3 s and was killed; it was told of rank_lost" in alerts[FAILED]
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    with anyio.fail_after(UP_S):
        while any(_runs(pid) for pid in pids):  # noqa: ASYNC110 - a stranger's end tells nobody
            await anyio.sleep(0.005)


async def test_the_end_is_told_next_however_many_alerts_wait(tmp_path, log):
    told = 'echo "$FLODL_CHILD_EVENT" >> "$PLACE/told"; '
    desk = desk_of(tmp_path, log, told + 'cat "$PLACE/gate.$FLODL_CHILD_EVENT"')
    desk.set_world(lambda rank: (HostName("red"), 1, 2 * MAX_WAITING_COMMANDS))
    gates = [tmp_path / f"gate.{event}" for event in ("rank_lost", "run_ended")]
    for gate in gates:
        os.mkfifo(gate)
    with anyio.fail_after(2 * UP_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.run_commands)
            desk.raise_alert("rank_lost", "rank 0 was lost", rank=0)
            await until_begun(tmp_path)
            for rank in range(1, MAX_WAITING_COMMANDS + 3):
                desk.raise_alert("rank_lost", f"rank {rank} was lost", rank=rank)
            tasks.start_soon(desk.finish, 1, "no rank is left")
            for gate in gates:
                await anyio.to_thread.run_sync(gate.write_text, "", abandon_on_cancel=True)
    assert (tmp_path / "told").read_text().split() == ["rank_lost", "run_ended"]
    assert desk.counts["rank_lost"] == MAX_WAITING_COMMANDS + 3
    said = (tmp_path / "log").read_text()
    assert said.count("on_event_skipped") == 2
    assert f"on_event_discarded count={MAX_WAITING_COMMANDS} alert_classes=rank_lost" in said


LAUNCHER = """
import os, sys
from pathlib import Path
import anyio
from flodl_core.net import clock
from flodl_core.roles.alerting import AlertDesk, EventCommand
from flodl_core.roles.history import RunHistory
from flodl_core.roles.run_story import RunStory
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.telemetry.recorder import RunRecorder

place, command = Path(sys.argv[1]), sys.argv[2]

async def main():
    log = ProcessLog(place / "log", host="red", process="launcher", utc_iso=clock.utc_iso)
    journal = Journal(place / "records", utc_iso=clock.utc_iso)
    story = RunStory(RunHistory(RunRecorder(journal), secrets=("x" * 32,)))
    wanted = EventCommand(command=command, classes=(), env={**os.environ, "PLACE": str(place)})
    desk = AlertDesk(log, journal, story, command=wanted)
    desk.raise_alert("rank_lost", "rank 1 was lost")
    await desk.run_commands()

anyio.run(main)
"""


def test_no_process_of_a_command_outlives_a_launcher_that_is_killed(tmp_path):
    os.mkfifo(tmp_path / "begun")
    forks = 'sleep 1000 & echo $$ $! > "$PLACE/pids"; ' + BEGIN + "wait"
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path), forks])
    try:
        (tmp_path / "begun").read_text()
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        watched = [os.pidfd_open(pid) for pid in pids]
        assert all(_runs(pid) for pid in pids)
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    for pidfd in watched:
        assert select.select([pidfd], [], [], UP_S)[0]
        os.close(pidfd)
    assert len(pids) == 2


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
