"""What can be played: a recorded run, or one that is made up.

What it is: a protocol; positions are seconds since the run began.
What it is not: the player.
Who drives it: `feed.player`; `telemetry.replay` and `demo.recording` fulfil it.
"""

from collections.abc import Sequence
from typing import Protocol

from flodl_core.telemetry.records import EventPage, WindowPage
from flodl_core.telemetry.state import StateDocument
from flodl_core.units import Seconds


class Recording(Protocol):
    """A run's whole course."""

    @property
    def length_s(self) -> Seconds:
        """From the start of the run to its last record."""

    @property
    def missing(self) -> tuple[str, ...]:
        """What of the record is not there, in sentences."""

    def times(self) -> Sequence[Seconds]:
        """Return when a document was recorded, rising."""

    def document_at(self, position_s: Seconds) -> StateDocument | None:
        """Return the newest document by then; None before the first."""

    def windows_until(self, position_s: Seconds, *, since: int = 0) -> WindowPage:
        """Return the windows that had ended by then and are newer than `since`."""

    def events_until(self, position_s: Seconds, *, since: int = 0) -> EventPage:
        """Return the events that had happened by then and are newer than `since`."""
