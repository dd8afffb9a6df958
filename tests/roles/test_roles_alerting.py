"""The user's own command for alerts: what it is told, its time, and that nothing of it is left."""

import json
import os
from pathlib import Path

import anyio
import pytest

from flodl_core.net import clock
from flodl_core.roles.alerting import AlertDesk, EventCommand
from flodl_core.roles.history import RunHistory
from flodl_core.roles.run_story import RunStory
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.telemetry.recorder import RunRecorder

pytestmark = pytest.mark.anyio

FAILED = "on_event_failed"


@pytest.fixture
def log(tmp_path):
    log = ProcessLog(tmp_path / "log", host="red", process="launcher", utc_iso=clock.utc_iso)
    yield log
    log.close()


def desk_of(place: Path, log: ProcessLog, command: str, **given) -> AlertDesk:
    journal = Journal(place / "records", utc_iso=clock.utc_iso)
    story = RunStory(RunHistory(RunRecorder(journal), secrets=("x" * 32,)))
    env = {"PATH": os.environ["PATH"], "PLACE": str(place)}
    wanted = EventCommand(command=command, classes=("rank_lost",), env=env, **given)
    return AlertDesk(log, journal, story, command=wanted)


async def told(desk: AlertDesk) -> dict[str, str]:
    """One alert that the command wants, one that it does not, and the end of the run."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.run_commands)
        desk.raise_alert("rank_lost", "rank 1 was lost")
        desk.raise_alert("drift", "values drift")
        await desk.finish(0, "finished")
    return {row.alert_class: row.detail for row in desk.rows()}


async def test_a_command_gets_the_alerts_it_wants_and_the_end(tmp_path, log):
    alerts = await told(desk_of(tmp_path, log, 'cat > "$PLACE/$FLODL_CHILD_EVENT"'))
    assert json.loads((tmp_path / "rank_lost").read_text())["detail"] == "rank 1 was lost"
    assert "exit code 0" in (tmp_path / "run_ended").read_text()
    assert not (tmp_path / "drift").exists()
    assert FAILED not in alerts


async def test_a_command_that_fails_is_an_alert_which_runs_no_command(tmp_path, log):
    alerts = await told(desk_of(tmp_path, log, 'echo x >> "$PLACE/runs"; exit 7'))
    assert "ended with 7; it was told of rank_lost" in alerts[FAILED]
    assert len((tmp_path / "runs").read_text().split()) == 2  # the loss and the end


async def test_a_command_that_hangs_is_killed_with_all_that_it_started(tmp_path, log):
    hanging = 'sleep 1000 & echo $! >> "$PLACE/pids"; wait'
    alerts = await told(desk_of(tmp_path, log, hanging, timeout_s=0.5))
    assert "did not end in 0.5 s and was killed; it was told of rank_lost" in alerts[FAILED]
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    assert not [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
