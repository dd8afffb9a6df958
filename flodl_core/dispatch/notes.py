"""What a pure machine says about input that it did not act on.

Not a log record: machines never log. The role that drives the machine counts
notes by code and writes them. The relay and the coordinator use this class too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

NoteValue = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Note:
    """Something unknown, late, stale or worth a line happened; nothing else changed.

    Attributes:
        code: a stable snake_case word; notes are counted by it.
        fields: plain values that name what it was about.
    """

    code: str
    fields: Mapping[str, NoteValue] = field(default_factory=dict)
