"""The list of all message classes and their kind numbers.

A message is one frozen class, the same for in-process channels and for the
wire. `flodl_core.wire.codec` turns it into bytes by reading its annotations, so
a field may be: bool, int, float, str, bytes, a StrEnum, an optional of those, a
tuple of those, a dict with str keys, or another dataclass of this package.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")

KINDS: dict[int, type] = {}
"""Kind number to message class."""

NUMBERS: dict[type, int] = {}
"""Message class to kind number."""

RESERVED_KINDS = frozenset({4, 5})
"""ParamSnapshotMeta and Heartbeat of an earlier wire: ignored on receipt."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def message(number: int) -> Callable[[type[T]], type[T]]:
    """Register a message class under `number` (0 … 65535, unique) and freeze it."""

    def register(cls: type[T]) -> type[T]:
        made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        if number in KINDS or number in RESERVED_KINDS:
            raise ValueError(f"message kind {number} is taken")
        KINDS[number] = made
        NUMBERS[made] = number
        return made

    return register


@dataclass_transform(frozen_default=True, kw_only_default=True)
def part(cls: type[T]) -> type[T]:
    """Freeze a class that only occurs inside messages."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)
