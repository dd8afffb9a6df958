"""A host that is in and lies: it speaks for its own ranks only, and harms its own link only."""

import pytest
from net_pairs import Recorder, mux_ends

from flodl_core.coordinator.events import RankMessage
from flodl_core.errors import BadFrameError
from flodl_core.ids import HostName, Rank, RankPhase
from flodl_core.messages.mux import Data, RankExit, RelayDeclareDead, RelayHelloAck
from flodl_core.messages.timing import Heartbeat
from flodl_core.net.mux_link import MuxLink
from flodl_core.roles.host_link import HostLink, LinkReports
from flodl_core.wire.codec import encode


class Told:
    """What the launcher's end of a host's link passed on."""

    def __init__(self) -> None:
        self.messages: list[RankMessage] = []
        self.exits: list[Rank] = []
        self.closed: list[Exception | None] = []


def beat(rank: int) -> Data:
    kind, payload = encode(Heartbeat(rank=Rank(rank), step_count=1, phase=RankPhase.HELD))
    return Data(rank=Rank(rank), kind=kind, payload=payload)


def hear(*said: object) -> Told:
    """Let a relay of host red, which has the ranks 2 and 3, say something."""
    end, far = mux_ends()
    told = Told()
    host = HostLink(
        HostName("red"),
        (Rank(2), Rank(3)),
        end=end,
        root=None,  # type: ignore[arg-type]
        reports=LinkReports(
            rank_message=told.messages.append,
            rank_exit=told.exits.append,
            closed=lambda _, error: told.closed.append(error),
        ),
    )
    host.link.start()
    liar = MuxLink(far, Recorder())
    liar.start()
    for message in said:
        liar.send(message)
    liar.close(flush_s=5.0)
    host.link.close()
    return told


def test_what_a_relay_says_for_its_own_ranks_is_passed_on() -> None:
    told = hear(beat(2), beat(3), RankExit(rank=Rank(3)))
    assert [message.rank for message in told.messages] == [2, 3]
    assert told.exits == [3]
    assert told.closed == [None]


@pytest.mark.parametrize(
    "lie",
    [
        beat(0),
        beat(1),
        beat(4),
        beat(-1),
        beat(2**40),
        RankExit(rank=Rank(0)),
        RelayDeclareDead(rank=Rank(0)),
        RelayHelloAck(),
        Data(rank=Rank(2), kind=16, payload=b"\x91"),
        Data(rank=Rank(2), kind=9_999, payload=b""),
    ],
    ids=lambda lie: f"{type(lie).__name__} {getattr(lie, 'rank', '')}",
)
def test_a_relay_that_speaks_for_another_rank_or_out_of_its_part_is_cut_off(lie) -> None:
    told = hear(beat(2), lie, beat(3))
    assert [message.rank for message in told.messages] == [2]
    assert told.exits == []
    assert [type(error) for error in told.closed] == [BadFrameError]
