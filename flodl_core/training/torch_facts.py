"""What torch says of this machine: its version, its NCCL, and each device tried once.

What it is: a look that allocates a few bytes on each device and computes with them, so that
a device that is listed but broken is found.
What it is not: a measurement (`solo`), or a judgement (`flodl_core.probe.checks`).
Who drives it: the prober's process (`roles.prober`).
"""

import torch

from flodl_core.probe.facts import DeviceProbe, TorchFacts
from flodl_core.training.inspection import local_devices, nccl_version, torch_variant
from flodl_core.training.load import describe_error


def read_torch() -> TorchFacts:
    """Return what torch is here and what devices it has."""
    return TorchFacts(
        torch=torch_variant(),
        cuda=torch.version.cuda or torch.version.hip,
        nccl=nccl_version(),
        devices=tuple(try_device(name) for name in local_devices()),
    )


def try_device(name: str) -> DeviceProbe:
    """Return what a device is, and what went wrong when it was used, if anything did."""
    device = torch.device("cpu" if name.startswith("cpu") else name)
    title, free, total = "processor", None, None
    try:
        if device.type == "cuda":
            title = torch.cuda.get_device_properties(device).name
            free, total = torch.cuda.mem_get_info(device)
        elif device.type == "mps":
            title = "Apple GPU"
        ones = torch.ones(64, 64, device=device)
        total_sum = float((ones @ ones).sum().item())
    except Exception as error:  # drivers fail in kinds of their own
        return DeviceProbe(
            device=name,
            title=title,
            memory_free_bytes=free,
            memory_bytes=total,
            error=describe_error(error),
        )
    wrong = f"it computed {total_sum:g} instead of 262144" if total_sum != 64.0**3 else None
    return DeviceProbe(
        device=name, title=title, memory_free_bytes=free, memory_bytes=total, error=wrong
    )
