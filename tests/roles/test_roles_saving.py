"""The bundles of a run, as its launcher writes them."""

import dataclasses

import numpy as np
import pytest
from small_model import GEOMETRY
from wire_examples import ENVELOPE

from flodl_core.checkpoint.bundle import find_bundle
from flodl_core.coordinator.effects import SaveBundle
from flodl_core.coordinator.facts import SaveFacts
from flodl_core.ids import HostName, SaveReason
from flodl_core.messages.job import ResumeSpec
from flodl_core.planes.consensus import CommittedView
from flodl_core.roles.saving import BundleWriter, SavedMarks
from flodl_core.telemetry.logs import ProcessLog

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def log(tmp_path):
    log = ProcessLog(tmp_path / "log", host="red", process="launcher", utc_iso=lambda: "")
    yield log
    log.close()


class Run:
    """What saves the versions of one run."""

    def __init__(self, stem, log, run_id, *, bundle=None):
        resume = None
        if bundle is not None:
            resume = ResumeSpec(
                stem=str(bundle.stem),
                bundle_id=bundle.meta.bundle_id,
                sync_round=bundle.meta.sync_round,
                global_step=0,
                rank_files=(),
            )
        spec = dataclasses.replace(
            ENVELOPE.spec, run_id=run_id, resume=resume, keep_checkpoints=2, outer=None
        )
        self.writer = BundleWriter(stem, name="run", host=HostName("red"), log=log)
        self.writer.use(dataclasses.replace(ENVELOPE, geometry=GEOMETRY, spec=spec), self.pin)

    def pin(self, version):
        values = np.full(16, version, np.float32)
        return CommittedView(version, values, np.zeros(0, np.float32), on_release=lambda: None)

    async def save(self, version):
        facts = SaveFacts(
            epoch=0,
            epochs=1,
            epoch_splits=1,
            global_step=version,
            sync_round=version,
            world_size=1,
            ranks_alive=1,
            seed=0,
            batch_size=1,
            n_samples=1,
            samples_trained=0,
            samples_dropped=0,
            coverage=(),
        )
        order = SaveBundle(version, SaveReason.CHECKPOINT, facts, local_buffers={})
        marks = SavedMarks(loss=None, metric=None, metric_name=None)
        assert await self.writer.write(self.writer.begin(order, marks)) is None


async def test_what_a_run_went_on_from_outlives_newer_checkpoints_that_it_left_behind(
    tmp_path, log
):
    stem = tmp_path / "out" / "model"
    earlier = Run(stem, log, "00112233445566aa")
    for version in (7, 9):
        await earlier.save(version)
    resumed = find_bundle(tmp_path / "out" / "model.prev").bundle
    run = Run(stem, log, "00112233445566bb", bundle=resumed)
    await run.save(10)
    assert find_bundle(stem).bundle.meta.sync_round == 10
    assert find_bundle(tmp_path / "out" / "model.prev").bundle.meta.sync_round == 7
    await run.save(11)
    assert find_bundle(tmp_path / "out" / "model.prev").bundle.meta.sync_round == 10
    assert not list(stem.parent.glob("model.prev2.*"))
