"""Hosts over a real sshd in a network of its own, a real Slurm, a real Ray; kills at the ends."""

import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import LONG_S, SHORT_S, Launched
from placing_rig import (
    labelled,
    path_with,
    ray_cluster,
    slurm,
    sshd,
    until_none,
    why_no_ray,
    why_no_slurm,
    why_no_sshd,
    write_workers,
)
from process_table import find_processes

sys.path.append(str(Path(__file__).resolve().parents[1] / "chaos"))

from chaos_networks import Networks, why_not

pytestmark = [
    pytest.mark.processes,
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

LONG_RUN = ("synthetic", "--epochs", "100000")


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    """Start runs, each in a directory of its own."""
    started: list[Launched] = []

    def start(*words: str, extra: dict[str, str], through: tuple[str, ...] = (), workers=()):
        place = tmp_path / f"run{len(started)}"
        place.mkdir()
        if workers:
            write_workers(place, *workers)
        started.append(Launched(place, *words, extra=extra, through=through))
        return started[-1]

    yield start
    for run in started:
        run.destroy()


def label() -> str:
    return f"host-{uuid.uuid4().hex[:6]}"


def node_label(run: Launched) -> str:
    """The label of the one host that Slurm placed, as it joined."""
    said = run.until_said("joined", "rank 1 ")
    return said.split()[1]


@pytest.mark.skipif(bool(why_no_sshd() or why_not()), reason=why_no_sshd() or why_not() or "-")
def test_a_launcher_on_loopback_is_reached_through_a_tunnel_and_leaves_nothing_behind(
    launch, tmp_path
):
    """The host lives in a network that reaches ours by one wire, and its sshd there."""
    name = label()
    networks = Networks()
    try:
        near, far = networks.roads.near, networks.roads.far
        with sshd(tmp_path / "sshd", "10.77.0.2", names=[name], through=far) as folder:
            run = launch(
                *(*LONG_RUN, "--ranks", "1"),
                extra=path_with(folder),
                through=near,
                workers=(f'host = "{name}"\nranks = 2',),
            )
            run.until_trained(64, LONG_S)
            assert run.document["members"][1]["host"] == name
            assert len(labelled(name)) >= 4, "placed process, agent, relay and two ranks"
            assert "-R 127.0.0.1:" in " ".join(
                Path(f"/proc/{one.pid}/cmdline").read_bytes().decode().replace("\0", " ")
                for one in find_processes(run.mark)
                if one.name.startswith(("ssh", "/"))
            )
            run.signal(signal.SIGKILL)
            assert not until_none(name, 60.0)
            run.await_all_gone(60.0)
    finally:
        networks.close()


@pytest.mark.skipif(bool(why_no_sshd()), reason=why_no_sshd() or "-")
def test_a_run_outlives_the_end_of_a_session_and_nothing_is_left_at_its_far_end(launch, tmp_path):
    """What serves the session on the host is killed, tunnel and all; the daemon goes on."""
    name = label()
    with sshd(tmp_path / "sshd", "127.0.0.1", names=[name]) as folder:
        run = launch(
            *(*LONG_RUN, "--ranks", "2"), extra=path_with(folder), workers=(f'host = "{name}"',)
        )
        run.until_trained(64, LONG_S)
        (placed,) = [line for line in labelled(name) if "roles.placed" in line]
        os.kill(parent_of(placed), signal.SIGKILL)
        run.until_lost(2, SHORT_S)
        before = run.document["training"]["samples_done"]
        run.until_trained(before + 256, LONG_S)
        assert not until_none(name, 90.0)
        assert run.flodl("stop").code == 0
        assert run.finish() == 4, run.story()
        assert [rank["rank"] for rank in run.summary["ranks"] if rank["state"] == "lost"] == [2]


@pytest.mark.skipif(bool(why_no_sshd() or why_not()), reason=why_no_sshd() or why_not() or "-")
def test_a_host_joins_through_a_machine_that_reaches_the_launcher(launch, tmp_path):
    """The launcher lives in the far network, on its loopback; the host in ours."""
    name = label()
    networks = Networks()
    try:
        near, far = networks.roads.near, networks.roads.far
        with sshd(tmp_path / "sshd", "10.77.0.2", names=["gate"], through=far) as folder:
            run = launch(
                *("synthetic", "--ranks", "1", "--require-token", "--min-rank-start", "2"),
                *("--target-ranks", "2"),
                extra=path_with(folder),
                through=far,
            )
            agent = run.start_flodl(
                *("join", run.address, "--ssh", "gate", "--token-file", str(run.token_file)),
                *("--host", name, "--devices", "cpu"),
                through=near,
            )
            assert run.finish(leaves_guest=True) == 0, run.story()
            said = agent.finish(SHORT_S)
            assert said.code == 0, said
            assert "a tunnel through ssh gate" in said.out
            assert run.summary["ranks"][1]["host"] == name
            assert not until_none(name, SHORT_S)
            run.await_all_gone(SHORT_S)
    finally:
        networks.close()


@pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm() or "-")
def test_slurm_places_a_host_in_an_allocation_and_outside_of_one(launch, tmp_path):
    words = ("--placement", "slurm", "--hosts", "2", "--ranks-per-host", "1", "--devices", "cpu")
    with slurm(tmp_path / "slurm") as env:
        inside = launch("synthetic", *words, extra=env, through=("salloc", "--quiet", "-n", "1"))
        assert inside.finish() == 0, inside.story()
        assert inside.summary["samples_trained"] == 4096
        outside = launch(*LONG_RUN, *words, extra=env)
        outside.until_trained(64, LONG_S)
        assert node_label(outside) == "slurm-1"
        outside.signal(signal.SIGKILL)
        outside.await_all_gone(60.0)


@pytest.mark.skipif(bool(why_no_ray()), reason=why_no_ray() or "-")
def test_ray_places_two_hosts_and_the_run_goes_on_when_it_takes_one_back(launch):
    words = ("--placement", "ray", "--hosts", "3", "--ranks-per-host", "1", "--devices", "cpu")
    with ray_cluster() as env:
        run = launch(*LONG_RUN, *words, extra=env)
        run.until_trained(64, LONG_S)
        (placed,) = [line for line in labelled("ray-1") if "roles.placed" in line]
        os.kill(parent_of(placed), signal.SIGKILL)
        run.until_lost(1, SHORT_S)
        before = run.document["training"]["samples_done"]
        run.until_trained(before + 256, LONG_S)
        assert not until_none("ray-1", 60.0)
        run.signal(signal.SIGKILL)
        assert not until_none("ray-2", 60.0)
        run.await_all_gone(60.0)


def parent_of(placed: str) -> int:
    """Return the process that started a placed process: an actor of Ray, a session of sshd."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if " ".join(words) == placed:
                return int(stat[1])
    raise AssertionError(f"no process {placed}")
