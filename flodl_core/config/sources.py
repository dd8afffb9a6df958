"""Where a value came from.

What it is: two frozen records that travel with every setting.
What it is not: a precedence; that is `load`.
Who drives it: `load` makes them, errors and `explain` print them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")


class SourceKind(StrEnum):
    """The places a value may come from, the strongest first."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DERIVED = "derived"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Source:
    """One place; prints as a reader would look for it."""

    kind: SourceKind
    where: str = ""
    """Option, variable, `file:line`, or what the value was derived from."""

    def __str__(self) -> str:
        return self.kind if not self.where else f"{self.kind} {self.where}"


@dataclass(frozen=True, slots=True)
class Resolved(Generic[ValueT]):
    """A value and its source."""

    value: ValueT
    source: Source
