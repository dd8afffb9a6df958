"""Which collective a rank is in: its newest one, numbered, and a record of each on request.

Collectives that do not match show as another number of them for one cycle; the one that a
rank is parked in says where.
"""

from collections.abc import Callable

from flodl_core.ids import Cycle, Session

Record = Callable[[str, str], None]
"""Takes ENTER or EXIT, and what."""


class CollectiveTrace:
    """Numbers the collectives of one rank.

    Args:
        record: told of each; None where nobody wants to know.
        park: told which collective the rank waits in; an empty text when it waits in none.
    """

    def __init__(
        self, record: Record | None = None, *, park: Callable[[str], None] = lambda _: None
    ) -> None:
        self._record = record
        self._park = park
        self._entered = 0

    def enter(self, name: str, session: Session, cycle: Cycle | None) -> str:
        """A collective is enqueued: it gets a number. Returns what it is called from now on."""
        self._entered += 1
        of_cycle = "" if cycle is None else f", cycle {cycle}"
        where = f"{name} #{self._entered} of session {session}{of_cycle}"
        self.wait(where)
        if self._record is not None:
            self._record("ENTER", where)
        return where

    def wait(self, where: str) -> None:
        """The rank waits for that one to end."""
        self._park(where)

    def leave(self, where: str) -> None:
        """It has ended."""
        if self._record is not None:
            self._record("EXIT", where)
        self._park("")
