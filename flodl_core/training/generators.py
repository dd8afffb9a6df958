"""The states of the random generators that a rank trains with, taken and put back.

They are torch's on the CPU and on the rank's own device, Python's and numpy's, as
tensors and plain tuples. Samples have seeds of their own and need none of them.
"""

import random
from typing import Final

import numpy as np
import torch

from flodl_core.training.plain_state import Plain

_NUMPY: Final = "MT19937"
"""The only kind that numpy's global generator has, unless a job puts in another."""


def take_generators(device: torch.device) -> dict[str, Plain]:
    """Return the states as they are now.

    Args:
        device: that the rank trains on.
    """
    taken: dict[str, Plain] = {
        "torch": torch.default_generator.get_state(),
        "python": random.getstate(),
    }
    name, *rest = np.random.get_state()
    if name == _NUMPY:
        key, *numbers = rest
        taken["numpy"] = (torch.from_numpy(np.asarray(key).astype(np.int64)), *numbers)
    if device.type == "cuda":
        taken["device"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        taken["device"] = torch.mps.get_rng_state()
    return taken


def put_back_generators(states: dict[str, Plain], device: torch.device) -> None:
    """Go on from states that `take_generators` returned on a device of the same type."""
    torch.default_generator.set_state(states["torch"])
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    if "numpy" in states:
        key, *numbers = states["numpy"]
        np.random.set_state((_NUMPY, key.numpy().astype(np.uint32), *numbers))
    if "device" in states:
        if device.type == "cuda":
            torch.cuda.set_rng_state(states["device"], device)
        elif device.type == "mps":
            torch.mps.set_rng_state(states["device"])
