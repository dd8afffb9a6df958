"""When a rank is lost: two signs of its end, put together.

A rank's process ends (its host's wait says so) and its channel ends (its socket
does). Messages that it sent before are still on the channel, among them a clean
Exiting or the reason of its failure; so its loss is told when both signs are
there, or half a second after the first. Pure of sockets and processes.
"""

from dataclasses import dataclass

from flodl_core.ids import Rank
from flodl_core.units import Seconds

SECOND_SIGN_S: Seconds = 0.5


@dataclass(slots=True)
class _Signs:
    since: Seconds
    exited: str | None = None
    channel_ended: bool = False


class RankEndWatch:
    """Collects the signs of each rank's end."""

    def __init__(self) -> None:
        self._signs: dict[Rank, _Signs] = {}
        self._told: set[Rank] = set()

    def process_exited(self, rank: Rank, cause: str, now: Seconds) -> str | None:
        """Take the exit of a rank's process; returns the cause of its loss, if it is told now."""
        signs = self._signs.setdefault(rank, _Signs(now))
        signs.exited = signs.exited or cause
        return self._tell(rank) if signs.channel_ended else None

    def channel_ended(self, rank: Rank, now: Seconds) -> str | None:
        """Take the end of a rank's channel; returns the cause of its loss, if it is told now."""
        signs = self._signs.setdefault(rank, _Signs(now))
        signs.channel_ended = True
        return self._tell(rank) if signs.exited is not None else None

    def overdue(self, now: Seconds) -> list[tuple[Rank, str]]:
        """Return ranks of which one sign has waited long enough for the other."""
        late = [
            rank
            for rank, signs in self._signs.items()
            if rank not in self._told and now - signs.since >= SECOND_SIGN_S
        ]
        return [(rank, cause) for rank in late if (cause := self._tell(rank)) is not None]

    def deadline(self) -> Seconds | None:
        """Return when `overdue` may have something."""
        waiting = [s.since for rank, s in self._signs.items() if rank not in self._told]
        return min(waiting) + SECOND_SIGN_S if waiting else None

    def lose(self, rank: Rank) -> bool:
        """Note that a rank is lost for another reason; returns whether that is news."""
        is_news = rank not in self._told
        self._told.add(rank)
        return is_news

    def _tell(self, rank: Rank) -> str | None:
        if not self.lose(rank):
            return None
        signs = self._signs[rank]
        return signs.exited or "its channel ended, its process may still run"
