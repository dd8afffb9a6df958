"""What is wrong with a machine, and what to do about it."""

import pytest

from flodl_core.probe.checks import (
    Finding,
    check_clock,
    check_machine,
    check_torch,
    has_errors,
    pick_interface,
)
from flodl_core.probe.facts import DeviceProbe, TorchFacts
from flodl_core.probe.machine import MachineFacts, read_machine
from flodl_core.units import MIB


def machine(**given):
    facts = {
        "machine": "blue",
        "system": "Linux 6",
        "flodl": "1",
        "python": "3.11",
        "cores": 8,
        "memory_bytes": 2**34,
        "memory_free_bytes": 2**33,
        "disk_free_bytes": 2**33,
        "driver": "560.1",
        "nccl4py": "0.6",
    }
    return MachineFacts(**{**facts, **given})


def torch(*devices, nccl="2.26.5"):
    return TorchFacts(torch="2.6.0+cu124", cuda="12.4", nccl=nccl, devices=devices)


def gpu(number, error=None):
    return DeviceProbe(
        device=f"cuda:{number}",
        title="H200",
        memory_bytes=2**37,
        memory_free_bytes=2**36,
        error=error,
    )


def by_name(checks):
    return {one.name: one for one in checks}


def test_a_sound_machine_has_no_errors():
    facts = machine()
    checks = [*check_machine(facts), *check_torch(torch(gpu(0), gpu(1)), facts)]
    assert {one.finding for one in checks} == {Finding.OK}
    assert not has_errors(checks)
    found = by_name(checks)
    assert found["cuda:0"].detail == "H200, 64 GiB of 128 GiB free"
    assert found["NCCL"].detail == "2.26.5, nccl4py 0.6"


def test_too_little_room_is_an_error_with_what_is_needed():
    found = by_name(check_machine(machine(disk_free_bytes=10 * MIB, memory_free_bytes=MIB)))
    assert found["disk"].finding is Finding.ERROR
    assert "256 MiB" in found["disk"].fix
    assert "--run-dir" in found["disk"].fix
    assert found["memory"].finding is Finding.ERROR
    unknown = by_name(check_machine(machine(memory_free_bytes=None)))
    assert unknown["memory"].finding is Finding.WARNING


def test_a_device_that_does_not_compute_is_an_error_by_name():
    checks = check_torch(torch(gpu(0), gpu(1, error="RuntimeError: no kernel image")), machine())
    assert has_errors(checks)
    assert "no kernel image" in by_name(checks)["cuda:1"].detail


def test_gpus_without_the_binding_or_the_driver_are_warned_of():
    facts = machine(nccl4py=None, driver=None)
    found = by_name(check_torch(torch(gpu(0), gpu(1)), facts))
    assert found["NCCL"].finding is Finding.WARNING
    assert found["NCCL"].fix == "pip install 'flodl[nccl]'"
    assert found["driver"].finding is Finding.WARNING
    one = by_name(check_torch(torch(gpu(0)), facts))
    assert "NCCL" not in one, "one GPU needs none"
    alone = by_name(check_torch(torch(DeviceProbe(device="cpu:0", title="processor")), facts))
    assert "driver" not in alone


def test_a_clock_is_compared_with_the_controllers():
    assert check_clock(1e9, controller_utc_s=None).finding is Finding.ERROR
    assert check_clock(1.9e9, controller_utc_s=None).finding is Finding.OK
    near = check_clock(1.9e9, controller_utc_s=1.9e9 - 2)
    assert (near.finding, near.detail) == (Finding.OK, "2 s ahead of the controller's")
    far = check_clock(1.9e9, controller_utc_s=1.9e9 + 60)
    assert (far.finding, far.detail) == (Finding.WARNING, "60 s behind the controller's")
    assert "NTP" in far.fix


def test_this_machine_is_read_without_torch(tmp_path):
    facts = read_machine(tmp_path / "not" / "there", flodl="1")
    assert facts.cores >= 1
    assert facts.disk_free_bytes is not None
    assert facts.disk_free_bytes > 0
    assert facts.memory_free_bytes is None or facts.memory_free_bytes > 0


@pytest.mark.parametrize(
    ("interfaces", "picked"),
    [
        (("lo", "docker0", "eth0", "ib0"), "ib0"),
        (("lo", "docker0", "eth1", "eth0"), "eth1"),
        (("lo", "docker0"), "docker0"),
        (("lo",), "lo"),
        ((), None),
    ],
)
def test_nccl_prefers_infiniband_and_takes_docker_and_the_loopback_last(interfaces, picked):
    assert pick_interface(interfaces) == picked
