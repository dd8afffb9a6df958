"""What every pure machine shares: the beat of its clock, and the record of input that did nothing.

What it is: the event and the effect that all machines have in common.
What it is not: a base class; each machine stands alone.
Who drives it: roles and the simulator send `Tick`, and count `Note` by its code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

NoteValue: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed; whatever is due is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Input that changed nothing, and why."""

    code: str
    """A stable word, counted on the console."""
    fields: Mapping[str, NoteValue] = field(default_factory=dict)
