"""Small rules of the status document: device names, device use, refusals."""

from flodl_core.ids import HostName, Rank
from flodl_core.membership.snapshot import MemberRow
from flodl_core.messages.timing import ResourceSample
from flodl_core.roles.publishing import gpu_names, last_refusal, used_by
from flodl_core.telemetry.state import RefusalState, ResourceState


def row(host, first, devices, gpus=()):
    return MemberRow(
        host=HostName(host),
        address="10.0.0.1:4",
        ranks=tuple(Rank(first + index) for index in range(len(devices))),
        local_devices=devices,
        gpus=gpus,
        torch_variant="2.13.0",
        joined_at_s=0.0,
        connected=True,
    )


def test_a_rank_has_the_name_of_its_own_gpu():
    members = (
        row("red", 0, ("cuda:1", "cuda:0", "cpu:0"), ("NVIDIA A", "NVIDIA B")),
        row("blue", 3, ("cuda:2", "cuda:x", "mps"), ("NVIDIA C",)),
    )
    assert gpu_names(members) == {0: "NVIDIA B", 1: "NVIDIA A"}


def test_what_the_host_says_of_a_process_and_the_rank_of_its_device_is_one_record():
    process = ResourceState(cpu_percent=98.0, ram_used_bytes=7)
    device = ResourceSample(rank=Rank(0), gpu_percent=50.0, vram_used_bytes=2, vram_total_bytes=9)
    assert used_by(process, device) == ResourceState(
        cpu_percent=98.0, ram_used_bytes=7, gpu_percent=50.0, vram_used_bytes=2, vram_total_bytes=9
    )
    assert used_by(process, None) == process
    assert used_by(None, None) is None
    assert used_by(None, device).vram_total_bytes == 9


def test_the_last_refusal_is_one_line():
    rows = [
        RefusalState(host="a", address="10.0.0.1:1", reason=reason, at="x")
        for reason in ("too many devices", "another dataset")
    ]
    assert last_refusal(rows) == "10.0.0.1:1: another dataset"
    assert last_refusal([]) is None
