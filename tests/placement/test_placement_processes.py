"""Hosts of `[[workers]]` from the launch to nothing left, over a stand-in for ssh.

What stands in runs the remote line on this machine; everything else is as it is over ssh.
"""

import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import LONG_S, Launched
from placing_rig import labelled, path_with, stand_in_ssh, until_none, write_workers

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

JOB = """
import os, pathlib
import torch
from flodl_core import TrainJob

COUNT = int(pathlib.Path(os.environ["FLODL_DATA"], "count").read_text())

def step(ctx, batch):
    ctx.optimizer.zero_grad()
    loss = ctx.model(batch[0]).square().mean()
    loss.backward()
    ctx.optimizer.step()
    return loss

job = TrainJob(
    model=lambda: torch.nn.Linear(2, 1),
    optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    dataset=lambda: torch.utils.data.TensorDataset(torch.ones(COUNT, 2)),
    step=step,
    batch_size=4,
)
"""


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    """Start a run whose `ssh` is the stand-in, in a place that has its settings file."""
    started: list[Launched] = []
    road = path_with(stand_in_ssh(tmp_path / "road"))

    def start(*words: str, workers: tuple[str, ...], settings: str = "") -> Launched:
        place = tmp_path / f"run{len(started)}"
        place.mkdir()
        write_workers(place, *workers)
        with (place / "flodl.toml").open("a") as file:
            file.write(settings)
        (place / "data").mkdir()
        (place / "data" / "count").write_text("64")
        (place / "there").mkdir()
        for folder in (place, place / "there"):
            (folder / "counted.py").write_text(JOB)
        run = Launched(place, *words, "--advertise", "127.0.0.1", extra=road)
        started.append(run)
        return run

    yield start
    for run in started:
        run.destroy()


def test_a_host_is_looked_at_joins_and_trains_and_nothing_of_it_is_left(launch, tmp_path):
    label = f"blue-{uuid.uuid4().hex[:6]}"
    data = tmp_path / "run0" / "data"
    worker = (
        f'host = "{label}"\ndirectory = "{tmp_path}/run0/there"\ndata = "{data}"\nranks = 2\n'
        'job = "counted.py:job"\nenv = { OMP_NUM_THREADS = "1" }'
    )
    run = launch("counted.py:job", "--ranks", "1", "--data", str(data), workers=(worker,))
    assert run.finish() == 0, run.story()
    notes = run.texts("note")
    (row,) = [line for line in notes if line.startswith(label)]
    assert "ready" in row
    assert "cpu:0,cpu:1" in row
    assert any(line.startswith("host ") and "clock" in line for line in notes)
    ranks = {(one["rank"], one["host"]) for one in run.summary["ranks"]}
    assert {(1, label), (2, label)} <= ranks
    assert run.summary["samples_trained"] == 64
    assert not labelled(label)
    assert list((tmp_path / "run0" / "there" / "runs").iterdir()), "its logs are there"
    token = run.token_file.read_text().strip()
    assert token not in run.stderr + "".join(notes)


def test_a_host_that_cannot_take_part_is_named_before_the_window_opens(launch):
    fit, unfit = (f"{name}-{uuid.uuid4().hex[:6]}" for name in ("fit", "unfit"))
    run = launch(
        *("counted.py:job", "--ranks", "1", "--data", "data"),
        workers=(
            f'host = "{fit}"\ndirectory = "there"\njob = "counted.py:job"',
            f'host = "{unfit}"\npython = "/no/such/python"',
        ),
    )
    assert run.finish() == 3, run.story()
    said = run.error["text"]
    assert "1 of 2 hosts cannot take part" in said
    assert unfit in said
    assert "not found" in said
    assert not run.texts("phase"), "no window was opened"
    assert not labelled(fit)


def test_a_host_whose_road_ends_in_the_window_is_not_waited_for_where_the_quorum_may_do_without(
    launch, tmp_path
):
    """Its road carries the first order only. The settings of hosts that dial in do no harm."""
    lost, fit = (f"{name}-{uuid.uuid4().hex[:6]}" for name in ("lost", "fit"))
    half = tmp_path / "half"
    half.write_text(f'#!/bin/sh\nhead -n 1 | exec "{sys.executable}" "$@"\n')
    half.chmod(0o755)
    run = launch(
        *("synthetic", "--ranks", "1", "--min-rank-start", "2", "--join-timeout-s", "20"),
        workers=(f'host = "{lost}"\npython = "{half}"', f'host = "{fit}"'),
        settings="[agent]\npersist = true\n",
    )
    assert run.finish() == 0, run.story()
    hosts = [member["host"] for member in run.document["members"]]
    assert fit in hosts
    assert lost not in hosts
    log = (run.directory / "logs" / "launcher.log").read_text()
    (given_up,) = [line for line in log.splitlines() if "host_given_up" in line]
    assert lost in given_up
    assert not labelled(fit)


def test_whatever_kills_the_launcher_nothing_is_left_on_the_host(launch):
    label = f"red-{uuid.uuid4().hex[:6]}"
    run = launch(
        *("synthetic", "--ranks", "1", "--epochs", "100000"),
        workers=(f'host = "{label}"',),
    )
    run.until_trained(64, LONG_S)
    assert labelled(label)
    run.signal(signal.SIGKILL)
    assert not until_none(label, 60.0)
    run.await_all_gone(60.0)


def test_hosts_that_a_launcher_starts_here_hear_of_it_alone(tmp_path):
    """What the settings file or a variable says of an agent is for one that somebody types."""
    place = tmp_path / "named"
    place.mkdir()
    settings = '[run]\nhosts = 2\n[net]\ntimeout_scale = 2\n[agent]\nssh = "me@gateway.invalid"\n'
    (place / "other.toml").write_text(settings)
    run = Launched(
        place,
        *("synthetic", "--config", "other.toml", "--epochs", "2"),
        *("--job-arg", "params=1000", "--job-arg", "samples=64"),
        extra={"FLODL_TLS_FINGERPRINT": "4d5e" * 16, "FLODL_AGENT_DEVICES": "mps"},
    )
    try:
        assert run.finish() == 0, run.story()
        assert len({row["host"] for row in run.summary["ranks"]}) == 2
    finally:
        run.destroy()
