"""Which event an event follows from, where that is known. Pure memory of a run's faults.

What it is: the newest event of each sort that others follow from, by whom it was about.
What it is not: a diagnosis; it links only what is certain, such as the ranks of a host
that is gone.
Who drives it: the run's history, for each event that it keeps.
"""

from dataclasses import dataclass, field
from typing import Final

_STOP: Final = "stop"
_FIRST_LOSS: Final = "first loss"
_ENDING: Final = "ending"

_BY_LOSS: Final = frozenset({"all_ranks_lost", "max_failure_exceeded", "nothing_trained"})
_ENDINGS: Final = _BY_LOSS | {"reduce_stall", "non_finite"}


@dataclass(slots=True)
class CauseBook:
    """Remembers what may be a cause."""

    _known: dict[tuple[str, object], int] = field(default_factory=dict)

    def cause_of(self, name: str, *, rank: int | None, host: str | None) -> int | None:
        """Return the number of the event that an event of this name follows from.

        Args:
            name: of the new event.
            rank: whom it is about.
            host: where it is, or which.
        """
        match name:
            case "rank_lost":
                return self._find(("evict", rank), ("host_lost", host))
            case "host_drained" | "host_left":
                return self._find(("drain", host))
            case "save_written" | "save_failed":
                return self._find(("checkpoint", None))
            case "run_ended":
                return self._find((_STOP, None), (_ENDING, None), (_FIRST_LOSS, None))
            case _ if name in _BY_LOSS:
                return self._find((_FIRST_LOSS, None))
            case _:
                return None

    def note(self, name: str, seq: int, *, rank: int | None, host: str | None) -> None:
        """Remember an event that was kept; `cause_of` was asked before."""
        match name:
            case "evict":
                self._known["evict", rank] = seq
            case "host_lost":
                self._known["host_lost", host] = seq
            case "drain":
                self._known["drain", host] = seq
            case "checkpoint" | "stop":
                self._known[name, None] = seq
            case "save_written" | "save_failed":
                self._known.pop(("checkpoint", None), None)
            case "rank_lost":
                root = self.cause_of(name, rank=rank, host=host) or seq
                self._known.setdefault((_FIRST_LOSS, None), root)
            case _ if name in _ENDINGS:
                self._known[_ENDING, None] = seq

    def _find(self, *keys: tuple[str, object]) -> int | None:
        return next((self._known[key] for key in keys if key in self._known), None)
