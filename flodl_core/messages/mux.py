"""Mux channel: relay ⇄ controller, one connection a host."""

from flodl_core.ids import HostName, Rank
from flodl_core.messages.registry import message


@message(112)
class Data:
    """One encoded control, timing, metrics or rendezvous message of a rank, untouched."""

    rank: Rank
    kind: int
    payload: bytes


@message(113)
class RelayHello:
    """Relay → controller: these ranks speak through me."""

    host: HostName
    ranks: tuple[Rank, ...]
    """Ascending."""
    sigs: tuple[str, ...]
    """Model signatures, aligned with ranks, or empty."""


@message(114)
class RelayHelloAck:
    """Controller → relay: go on."""


@message(115)
class RankExit:
    """Relay → controller: that rank's channel ended."""

    rank: Rank


@message(116)
class RelayDeclareDead:
    """Controller → relay: stop waiting for that rank."""

    rank: Rank
