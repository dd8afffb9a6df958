"""What a host says of a GPU, and what is read out of it: one line a device, both ways.

What it is: the text that hosts send with their names, such as
`NVIDIA H200 (nvidia, generation 9, 139 GB)`, made and read in one place.
What it is not: a query of a device, nor the choice that follows from it.
Who drives it: the inspector writes the line, the launcher reads it when a world forms.
"""

import re
from typing import Final

from flodl_core.elche.election import DeviceFacts

_FACTS: Final = re.compile(
    r".* \((?P<vendor>[a-z]{1,16}), generation (?P<generation>\d{1,4}), (?P<memory>\d{1,6}) GB\)"
)


def describe_gpu(name: str, facts: DeviceFacts) -> str:
    """Return a GPU's name with what tells a slow one from a fast one."""
    return f"{name} ({facts.vendor}, generation {facts.generation}, {facts.memory_gb:.0f} GB)"


def read_gpu_untrusted(text: str) -> DeviceFacts | None:
    """Return what a host said of a GPU; None if it is in other words."""
    found = _FACTS.fullmatch(text)
    if found is None:
        return None
    return DeviceFacts(
        vendor=found["vendor"],
        generation=int(found["generation"]),
        memory_gb=float(found["memory"]),
    )
