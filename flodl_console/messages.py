"""Textual messages that carry facts across a worker's or a widget's border.

What it is: frozen facts on their way to a handler.
What it is not: the facts' own vocabulary; that is `view.records`.
Who drives it: the feed's worker posts `RecordArrived`, widgets post the others, `@on`
handlers of the app and of screens take them.
"""

from dataclasses import dataclass
from typing import Final

from textual.message import Message

from flodl_console.view.records import ClockTicked, DocumentArrived, PlaybackMoved, Record

_NEWEST_ONLY: Final = (ClockTicked, DocumentArrived, PlaybackMoved)
"""Records of which a newer one says all that an older one said."""


@dataclass
class RecordArrived(Message):
    """A feed said something."""

    record: Record

    def can_replace(self, message: Message) -> bool:
        """Return whether an older message need not be handled, as this one says it anew.

        A document of another run does not stand for the one before: history would be lost.
        """
        if not isinstance(message, RecordArrived):
            return False
        mine, older = self.record, message.record
        if type(mine) is not type(older) or not isinstance(mine, _NEWEST_ONLY):
            return False
        if isinstance(mine, DocumentArrived) and isinstance(older, DocumentArrived):
            return mine.document.run.id == older.document.run.id
        return True


@dataclass
class RankChosen(Message):
    """Somebody wants to see one rank."""

    rank: int


@dataclass
class Noticed(Message):
    """Something is to be said to the person in front of the screen."""

    text: str
    """One sentence."""
    is_problem: bool = False
