"""The two socketpairs of each rank, as they are made before it is started.

One end of each goes to the rank, the other to whoever folds for the host: the
relay process, or the launcher for its own ranks.
"""

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flodl_core.ids import Rank
from flodl_core.net.local import socket_pair


@dataclass(frozen=True, slots=True)
class RankEnds:
    """One side of a rank's two socketpairs."""

    control: socket.socket
    data: socket.socket

    def descriptors(self) -> tuple[int, int]:
        """Return the descriptors, control first."""
        return self.control.fileno(), self.data.fileno()

    def close(self) -> None:
        """Close this side; the other process keeps its own."""
        self.control.close()
        self.data.close()


def make_ends(ranks: Iterable[Rank]) -> tuple[dict[Rank, RankEnds], dict[Rank, RankEnds]]:
    """Return (ends of the folding side, ends of the ranks)."""
    folding: dict[Rank, RankEnds] = {}
    theirs: dict[Rank, RankEnds] = {}
    for rank in ranks:
        control, rank_control = socket_pair()
        data, rank_data = socket_pair()
        folding[rank] = RankEnds(control, data)
        theirs[rank] = RankEnds(rank_control, rank_data)
    return folding, theirs


def close_ends(ends: Mapping[Rank, RankEnds]) -> None:
    """Close every socket of one side."""
    for one in ends.values():
        one.close()


def adopt_ends(descriptors: Mapping[Rank, tuple[int, int]]) -> dict[Rank, RankEnds]:
    """Wrap inherited descriptors (control, data) of each rank."""
    return {
        rank: RankEnds(socket.socket(fileno=control), socket.socket(fileno=data))
        for rank, (control, data) in descriptors.items()
    }
