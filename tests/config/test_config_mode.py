"""The mode that a formed world gets where nobody named one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from flodl_core.config.mode import HostDevices, choose_mode
from flodl_core.ids import Mode

RED = HostDevices(host="red", devices=("cuda:0", "cuda:1"), vendor="NVIDIA", nccl="2.28.9")
BLUE = HostDevices(host="blue", devices=("cuda:0",), vendor="NVIDIA", nccl="2.28.3")


@pytest.mark.parametrize("hosts", [(RED,), (RED, BLUE)])
def test_like_gpus_average_among_themselves(hosts: Sequence[HostDevices]) -> None:
    chosen = choose_mode(hosts)
    assert chosen.mode is Mode.NCCL_CADENCE
    assert "NCCL 2.28.9" in chosen.reason


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(BLUE, devices=("cpu:0",)), "cpu:0 on blue is no GPU"),
        (replace(BLUE, devices=("cuda:0", "cuda:0")), "ranks of blue share a GPU"),
        (replace(BLUE, vendor="AMD"), "blue has GPUs of AMD, red of NVIDIA"),
        (replace(BLUE, nccl=None), "blue has no nccl4py"),
        (replace(BLUE, nccl="2.27.9"), "blue has NCCL 2.27.9, red has 2.28.9"),
    ],
)
def test_one_host_that_cannot_is_named(other: HostDevices, words: str) -> None:
    chosen = choose_mode((RED, other))
    assert chosen.mode is Mode.CPU_CADENCE
    assert words in chosen.reason


def test_an_objection_outweighs_what_the_hosts_have() -> None:
    chosen = choose_mode((RED,), objection="an outer optimizer is chosen")
    assert chosen.mode is Mode.CPU_CADENCE
    assert "an outer optimizer is chosen" in chosen.reason


def test_one_rank_has_nobody_to_average_with() -> None:
    """On a CPU an average of one costs next to nothing; on a GPU a copy of the model each way."""
    assert choose_mode((replace(RED, devices=("cpu:0",)),)).mode is Mode.CPU_SYNC
    assert choose_mode((replace(RED, devices=("cuda:0",)),)).mode is Mode.CPU_CADENCE
