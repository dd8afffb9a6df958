"""The inspector as a process, and what is made of one that died without a word of ours."""

import re
import textwrap
from pathlib import Path

import anyio
import pytest

import flodl_core
from flodl_core.errors import JobError
from flodl_core.messages.job import JobRef
from flodl_core.net.children import job_environment, own_environment
from flodl_core.roles.inspection import ask_inspector, read_complaint
from flodl_core.training.job_name import name_job

SOURCES = Path(flodl_core.__file__).parent
REF = JobRef(kind="file", name="train:job", args={})
JOB = textwrap.dedent("""
    import random
    import torch
    from flodl_core import TrainJob
    from beside import COUNT

    job = TrainJob(
        model=lambda: torch.nn.Linear(1, 1),
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=lambda: torch.utils.data.TensorDataset(torch.ones(COUNT, 1)),
        step=lambda ctx, batch: 0.0,
    )
    assert random.random() < 1
""")


def complaint(text, ended="exit code 1"):
    return read_complaint(REF, textwrap.dedent(text), ended=ended, alone="look")


def test_an_inspector_that_spoke_is_quoted():
    error = complaint("noise\nerror: the model is odd\n  Fix: make it even\n")
    assert (error.happened, error.fix) == ("the model is odd", "make it even")


def test_of_a_traceback_the_last_line_and_the_last_place_are_told():
    error = complaint("""
        Traceback (most recent call last):
          File "/usr/lib/python3.11/runpy.py", line 198, in _run_module_as_main
            return _run_code(code, main_globals, None)
          File "/tmp/me/random.py", line 3, in <module>
            raise AttributeError("no seed")
        AttributeError: no seed
    """)
    assert error.happened == (
        "inspecting job 'train:job' ended with exit code 1: AttributeError: no seed "
        '(File "/tmp/me/random.py", line 3, in <module>)'
    )
    assert error.fix == "look"


def test_an_inspector_that_died_without_a_word_is_told_by_its_end():
    assert complaint("", ended="SIGKILL").happened == (
        "inspecting job 'train:job' ended with SIGKILL"
    )


def test_every_child_is_started_without_the_working_directory_on_its_path():
    """One place makes the command of a child; the loader's has its own."""
    makers = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if re.search(r"\bsys\.executable\b", path.read_text())
    }
    assert makers == {"net/children.py"}


def inspect(text):
    named = name_job(text, {})
    return anyio.run(
        lambda: ask_inspector(named.ref, named.path, env=own_environment(), timeout_s=50),
        backend="asyncio",
    )


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("text", ["train.py:job", "train:job"])
def test_files_named_like_standard_modules_disturb_no_child(tmp_path, monkeypatch, text):
    """`train.py:job` puts its own directory first, but only after all of ours is loaded."""
    for name in ("random", "selectors", "json", "anyio", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise AttributeError('the wrong module')\n")
    (tmp_path / "beside.py").write_text("COUNT = 5\n")
    (tmp_path / "train.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    assert inspect(text).n_samples == 5


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_a_job_that_leaves_while_it_is_built_is_named(tmp_path, monkeypatch, kind):
    code = JOB.replace("from beside", "# from beside").replace(
        "torch.utils.data.TensorDataset(torch.ones(COUNT, 1))", f"(_ for _ in ()).throw({kind}(0))"
    )
    (tmp_path / "train.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JobError, match=f"building the data failed: {kind}: 0"):
        inspect("train.py:job")


@pytest.mark.slow
def test_a_job_finds_the_directory_of_the_hosts_data(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "count").write_text("7")
    counted = "COUNT = int(pathlib.Path(os.environ['FLODL_DATA'], 'count').read_text())"
    job = tmp_path / "placed_data.py"
    job.write_text(
        JOB.replace(
            "from beside import COUNT",
            f"import os, pathlib\n{counted}",
        )
    )
    named = name_job(f"{job}:job", {})

    async def ask():
        return await ask_inspector(named.ref, named.path, env=job_environment(data), timeout_s=60.0)

    assert anyio.run(ask).n_samples == 7


@pytest.mark.slow
def test_a_thread_that_a_job_leaves_running_does_not_hold_the_inspection(tmp_path, monkeypatch):
    waiting = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    (tmp_path / "train.py").write_text(waiting + JOB)
    (tmp_path / "beside.py").write_text("COUNT = 5\n")
    monkeypatch.chdir(tmp_path)
    assert inspect("train.py:job").n_samples == 5


@pytest.mark.slow
def test_a_vocabulary_made_of_a_set_is_the_same_in_every_process(tmp_path, monkeypatch):
    names = [f"label {number}" for number in range(20)]
    job = tmp_path / "labelled.py"
    job.write_text(
        JOB.replace("from beside import COUNT", f"IDS = list(set({names}))").replace(
            "torch.ones(COUNT, 1)", "torch.tensor([int(name[6:]) for name in IDS])"
        )
    )
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    named, env = name_job(f"{job}:job", {}), job_environment(None)
    found = {
        anyio.run(lambda: ask_inspector(named.ref, named.path, env=env, timeout_s=60)).dataset_sig
        for _ in range(2)
    }
    assert len(found) == 1


def test_a_hash_seed_of_the_users_own_is_kept(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    assert job_environment(None)["PYTHONHASHSEED"] == "5"
