"""The job of the first page: loaded, trained by two ranks on the real plane, saved, loaded back."""

import re
import runpy
import sys
from contextlib import contextmanager

import pytest
import torch
from doc_code import ROOT
from doc_text import fences, read

from flodl_core.checkpoint.bundle import write_bundle
from flodl_core.checkpoint.meta import BundleFacts
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.training.evaluation import Evaluator
from flodl_core.training.inspection import describe_job
from flodl_core.training.job_name import name_job
from flodl_core.training.load import load_job

sys.path.append(str(ROOT / "tests" / "training"))
from training_cohort import Cohort, LocalStar

PAGE = read(ROOT / "docs" / "getting-started.md")


def file_of_the_page(name):
    """Return the fenced file that begins with its own name."""
    found = [body for body in fences(PAGE, "python") if body.startswith(f"# {name}\n")]
    assert len(found) == 1
    return found[0]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A reader's directory, with the files of the page."""
    monkeypatch.chdir(tmp_path)
    before = [*sys.path]
    for name in ("train.py", "scored.py", "use.py"):
        (tmp_path / name).write_text(file_of_the_page(name))
    yield tmp_path
    for name in ("train", "scored"):
        sys.modules.pop(name, None)
    sys.path[:] = before


def stem_in_the_page():
    return re.search(r"flodl headless train\.py:job .*--save-path (\S+)", PAGE)[1]


@contextmanager
def closing_with(deed):
    try:
        yield
    finally:
        deed()


@pytest.mark.slow
def test_the_job_of_the_first_page_trains_saves_and_loads_as_the_page_says(here):
    named = name_job("train.py:job", {})
    job = load_job(named.ref, path=named.path)
    assert (job.batch_size, job.epochs) == (32, 1)

    with Cohort(job, 2, star=LocalStar) as cohort, closing_with(cohort.star.stop):
        cohort.meet()
        first = cohort.train_epoch(0)
        second = cohort.train_epoch(1)
        assert second[0].avg_loss < first[0].avg_loss / 5
        version = cohort.cycle - 1
        trained = {name: value.clone() for name, value in cohort.model(1).state_dict().items()}
        assert cohort.finish() == [0, 0]
        with cohort.star.root.begin_save(version) as view:
            (here / stem_in_the_page()).parent.mkdir()
            write_bundle(
                here / stem_in_the_page(),
                cohort.envelope.geometry,
                SavedConsensus(
                    params=view.params,
                    buffers=view.buffers,
                    local_buffers={},
                ),
                facts=BundleFacts(
                    run_id="0123456789abcdef",
                    epoch=2,
                    global_step=cohort.global_step,
                    sync_round=version,
                    world_size=2,
                    reason="graceful_shutdown",
                ),
            )

    loaded = runpy.run_path("use.py")["model"].state_dict()
    assert set(loaded) == set(trained)
    assert all(bool((loaded[name] == trained[name]).all()) for name in trained)


@pytest.mark.slow
def test_the_scored_job_of_the_first_page_scores_and_reports(here):
    named = name_job("scored.py:job", {})
    job = load_job(named.ref, path=named.path)
    assert describe_job(job, name="scored").has_eval
    assert (job.scheduler(0), job.metric_name) == (1.0, "mse")
    found = Evaluator(job, batch_size=32, device=torch.device("cpu"), seed=1).evaluate(job.model())
    assert found.error is None
    assert 0 < found.metric < 100
    assert found.report.startswith("weights [")
