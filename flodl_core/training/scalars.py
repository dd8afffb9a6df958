"""What a job's step notes with `ctx.scalar`: it is looked at and added up by name.

A value that is not finite is left out together with its count. `step_context` drives it.
"""

import math
from typing import Final

import torch

from flodl_core.errors import JobError
from flodl_core.training.callbacks import described, number_of, require_number
from flodl_core.training.scalar_sum import ScalarSum

MAX_SCALARS: Final = 64
"""Names that a run may note; they stand in every status document."""
MAX_NAME_CHARS: Final = 64

_VALUE_FIX: Final = "let the value be a number or a tensor of one element"


class ScalarNotes:
    """What a step has noted since it was last taken."""

    def __init__(self) -> None:
        self._sums: dict[str, ScalarSum] = {}
        self._names: set[str] = set()

    def note(self, name: str, value: object, count: float) -> None:
        """Add a sum over `count` things.

        Raises:
            JobError: the name, the value or the count is none, or there are too many names.
        """
        if name not in self._names:
            self._admit(name)
        if not isinstance(count, int | float) or not 0 <= count < math.inf:
            raise JobError(
                f"ctx.scalar({name!r}) was given the count {count!r}",
                fix="count the things that the value is a sum of: 0 or more",
            )
        sums = self._sums.setdefault(name, ScalarSum())
        where = f"the value of ctx.scalar({name!r})"
        if isinstance(value, torch.Tensor) and value.is_cuda:
            require_number(where, value, fix=_VALUE_FIX)
            sums.add_on_device(_pair_of(name, value, count))
            return
        total = number_of(where, value, fix=_VALUE_FIX)
        if math.isfinite(total):
            sums.total += total
            sums.count += count

    def take(self) -> dict[str, ScalarSum]:
        """Return what was noted since the last call."""
        taken = self._sums
        if taken:
            self._sums = {}
        return taken

    def _admit(self, name: object) -> None:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
            shown = repr(name[:MAX_NAME_CHARS]) if isinstance(name, str) else described(name)
            raise JobError(
                f"ctx.scalar was given the name {shown}",
                fix=f"give a word of at most {MAX_NAME_CHARS} characters, such as accuracy",
            )
        if len(self._names) >= MAX_SCALARS:
            raise JobError(
                f"ctx.scalar was given {MAX_SCALARS + 1} names, the last of them {name!r}",
                fix=f"note at most {MAX_SCALARS} different names in a run",
            )
        self._names.add(name)


def _pair_of(name: str, value: torch.Tensor, count: float) -> torch.Tensor:
    """Return value and count as f64[2] on the value's device; zeros if it is not finite."""
    if torch.cuda.is_current_stream_capturing():
        raise JobError(
            f"ctx.scalar({name!r}) was called while a CUDA graph is recorded, "
            "so that no replay would be noted",
            fix="note the graph's output after each replay",
        )
    total = value.detach().reshape(()).double()
    pair = torch.stack((total, torch.full_like(total, count)))
    return torch.where(total.isfinite(), pair, 0.0)
