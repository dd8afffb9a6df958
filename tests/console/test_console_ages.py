"""How long ago something happened goes by the run's own clock, from the launcher to the box."""

from dataclasses import replace

import anyio
import numpy as np
import pytest
from console_documents import run_state, training, view_of
from console_support import document_of, scene
from wire_examples import ENVELOPE

from flodl_console.view.actions import ActionId, offer
from flodl_console.view.header import header_panel
from flodl_console.view.waits import run_verdict
from flodl_core.coordinator.effects import SaveBundle
from flodl_core.coordinator.facts import SaveFacts
from flodl_core.ids import HostName, SaveReason
from flodl_core.messages.job import Geometry, Segment, View
from flodl_core.planes.consensus import CommittedView
from flodl_core.roles.alerting import AlertDesk
from flodl_core.roles.history import RunHistory
from flodl_core.roles.run_story import RunStory
from flodl_core.roles.saving import BundleWriter, SavedMarks
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.telemetry.recorder import RunRecorder
from flodl_core.telemetry.state import (
    AlertState,
    CheckpointState,
    publish,
    read_document_untrusted,
)

GEOMETRY = Geometry(
    params=(
        Segment(
            name="w",
            dtype="float32",
            shape=(2,),
            offset=0,
            numel=2,
            trainable=True,
            views=(View(name="w", shape=(2,), strides=(1,), storage_offset=0),),
        ),
    ),
    params_numel=16,
    buffers=(),
    buffers_numel=0,
    locals=(),
)
FACTS = SaveFacts(
    epoch=0,
    epochs=1,
    epoch_splits=1,
    global_step=7,
    sync_round=7,
    world_size=1,
    ranks_alive=1,
    seed=0,
    batch_size=1,
    n_samples=1,
    samples_trained=0,
    samples_dropped=0,
    coverage=(),
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def log(tmp_path):
    log = ProcessLog(tmp_path / "log", host="red", process="launcher", utc_iso=lambda: "")
    yield log
    log.close()


def pinned(version: int) -> CommittedView:
    values = np.full(16, version, np.float32)
    return CommittedView(version, values, np.zeros(0, np.float32), on_release=lambda: None)


async def saved(writer: BundleWriter) -> CheckpointState:
    """What a writer tells of a save that went well."""
    spec = replace(ENVELOPE.spec, resume=None, outer=None)
    writer.use(replace(ENVELOPE, geometry=GEOMETRY, spec=spec), pinned)
    order = SaveBundle(7, SaveReason.CHECKPOINT, FACTS, local_buffers={})
    begun = writer.begin(order, SavedMarks(loss=None, metric=None, metric_name=None))
    assert not isinstance(begun, str)
    assert await writer.write(begun) is None
    return writer.state


@pytest.mark.anyio
async def test_a_checkpoint_is_told_with_the_age_of_the_run_when_it_was_complete(tmp_path, log):
    writer = BundleWriter(
        tmp_path / "a", name="run", host=HostName("red"), log=log, uptime=lambda: 42.5
    )
    assert (await saved(writer)).uptime_s == 42.5
    ageless = BundleWriter(tmp_path / "b", name="run", host=HostName("red"), log=log)
    assert (await saved(ageless)).uptime_s is None


@pytest.mark.anyio
async def test_an_alert_is_told_with_the_age_of_the_run_when_it_was_emitted(tmp_path, log):
    journal = Journal(tmp_path / "records", utc_iso=lambda: "")
    history = RunHistory(RunRecorder(journal), secrets=("x" * 32,))
    desk = AlertDesk(log, journal, RunStory(history), command=None)
    before_s = history.uptime_s()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.run_commands)
        desk.raise_alert("drift", "values drift")
        await desk.finish(0, "finished")
    (row,) = desk.rows()
    assert row.uptime_s is not None
    assert before_s <= row.uptime_s <= history.uptime_s()


def test_an_older_document_tells_no_ages_and_is_read_all_the_same():
    old = training(
        alerts=(AlertState(severity="warn", alert_class="drift", path="root", detail="x", at="?"),),
        checkpoint=CheckpointState(path="/a", version=3, at="2026-01-01T00:09:00Z"),
    )
    body = publish(old).replace(b'"uptime_s":null,', b"")
    assert b'"at":"2026-01-01T00:09:00Z"' in body
    read = read_document_untrusted(body)
    assert (read.alerts[0].uptime_s, read.checkpoint.uptime_s) == (None, None)


@pytest.mark.parametrize("started_at", ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z", "?"])
def test_no_step_of_the_wall_clock_changes_an_age_anywhere(started_at):
    happened_s, at = 570.0, "2026-01-01T00:09:30Z"
    shown = training(
        run=run_state(started_at=started_at, uptime_s=600.0),
        alerts=(
            AlertState(
                severity="warn",
                alert_class="drift",
                path="root",
                detail="values drift",
                at=at,
                uptime_s=happened_s,
            ),
        ),
        checkpoint=CheckpointState(path="/a", version=12, at=at, uptime_s=happened_s),
    )
    view = view_of(shown)
    assert "drift 30 s ago: values drift" in run_verdict(view).text
    panel = header_panel(view)
    assert panel is not None
    assert "saved v12 30 s ago" in [field.text for field in panel.fields]
    confirm = offer(view, ActionId.STOP_NOW).confirm
    assert confirm is not None
    assert "What came after version 12 (saved 30 s ago) is lost." in confirm.lines


def test_a_made_up_run_tells_ages_as_a_real_one_does():
    document = document_of(scene("night", at_s=20_000.0))
    assert document.checkpoint is not None
    assert document.checkpoint.uptime_s is not None
    assert 0.0 < document.checkpoint.uptime_s <= document.run.uptime_s
    assert document.alerts
    assert all(alert.uptime_s is not None for alert in document.alerts)
