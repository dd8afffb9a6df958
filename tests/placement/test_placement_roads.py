"""The commands that lead to hosts: whole, quoted, and with nothing secret in them."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.config.workers import WorkerConfig
from flodl_core.placement.roads import (
    PlacedHost,
    RayRoad,
    SlurmRoad,
    SshRoad,
    allocated_nodes,
    remote_command,
)


def host(label="blue", **given):
    return PlacedHost(label=label, worker=WorkerConfig(host=label, **given))


def test_ssh_digs_a_tunnel_to_a_launcher_that_listens_on_loopback():
    road = SshRoad(1337, address=None)
    one, other = road.approach(host(ssh="me@blue.lan")), road.approach(host())
    words = list(one.command)
    assert words[0] == "ssh"
    assert words[-2] == "me@blue.lan"
    port = int(one.controller.removeprefix("127.0.0.1:"))
    assert words[words.index("-R") + 1] == f"127.0.0.1:{port}:127.0.0.1:1337"
    assert "ExitOnForwardFailure=yes" in words
    assert 20_000 <= port < 32_000
    assert other.command[-2] == "blue"
    assert len({road.approach(host()).controller for _ in range(20)}) > 1
    assert road.attempts > 1, "another port is tried where one is taken"


def test_ssh_needs_no_tunnel_where_the_launcher_has_an_address():
    road = SshRoad(1337, address="10.0.0.5:1337")
    approach = road.approach(host())
    assert approach.controller == "10.0.0.5:1337"
    assert "-R" not in approach.command
    assert "BatchMode=yes" in approach.command, "nobody is there to type a password"


def test_the_line_for_a_login_shell_keeps_what_a_tilde_means():
    command = remote_command(host(directory="train", python="~/my venv/bin/python"))
    assert command == "exec ~/'my venv/bin/python' -P -m flodl_core.roles.placed --host blue"


@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
def test_no_name_adds_a_word_to_the_line(label, python):
    worker = WorkerConfig.model_construct(host=label, python=python, ssh="blue")
    words = shlex.split(remote_command(PlacedHost(label=label, worker=worker)))
    assert words[-1] == label
    assert len(words) == 7
    assert python.startswith("~/") or words[1] == python


def test_srun_starts_one_step_a_node_of_the_allocation():
    road = SlurmRoad("head:1337", nodes={"n2": "n2"})
    step = road.approach(host("n2", python="/opt/python")).command
    assert step[0] == "srun"
    assert {"--nodes=1", "--ntasks=1", "--overlap", "--nodelist=n2"} <= set(step)
    assert step[-6:] == (*("/opt/python", "-P", "-m", "flodl_core.roles.placed", "--host", "n2"),)
    outside = road.approach(host("slurm-1")).command
    assert not [word for word in outside if word.startswith(("--overlap", "--nodelist"))]


def test_nodes_of_an_allocation_are_those_beside_our_own():
    assert allocated_nodes(["n1", "n2", "n3"], "n1.cluster") == ("n2", "n3")
    assert allocated_nodes(["n1", "n2"], "login") == ("n1", "n2")


@pytest.mark.parametrize(
    ("worker", "gpus"),
    [({"devices": "cpu"}, 0), ({"devices": "cuda:0,cuda:1"}, 2), ({"devices": "cuda"}, 1)],
)
def test_ray_is_asked_for_the_gpus_that_a_host_brings(worker, gpus):
    words = RayRoad("head:1337").approach(host(**worker)).command
    assert words[words.index("--gpus") + 1] == str(gpus)


def test_every_road_says_what_to_try():
    for road in (SshRoad(1, address=None), SlurmRoad("h:1", nodes={}), RayRoad("h:1")):
        assert len(road.fix(host())) > 20
    assert "ssh -o BatchMode=yes blue true" in SshRoad(1, address=None).fix(host())
