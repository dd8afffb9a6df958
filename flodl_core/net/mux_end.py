"""One end of a fresh MUX connection: its socket, keys and counters, before threads take it over.

The handshake runs on the event loop, so that ten thousand silent peers cost no
thread; then the socket is made blocking and given to a `MuxLink`.
"""

import socket
from dataclasses import dataclass, field

from flodl_core.errors import BadFrameError
from flodl_core.messages.mux import RelayHello
from flodl_core.net import tcp
from flodl_core.net.addresses import Peer
from flodl_core.net.handshake import (
    HANDSHAKE_S,
    Newcomer,
    answer_handshake,
    dial_controller,
    read_first_frame,
)
from flodl_core.units import Seconds
from flodl_core.wire.codec import decode_untrusted
from flodl_core.wire.frame import FrameOpener, ReceiveCounter
from flodl_core.wire.handshake import (
    Channel,
    SessionKeys,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MuxEnd:
    """What a `MuxLink` needs; whoever does not build one closes the socket."""

    sock: socket.socket
    """Connected and blocking; nothing of it is read ahead."""
    keys: SessionKeys
    peer: Peer
    received: ReceiveCounter = field(default_factory=ReceiveCounter)
    """Frames that came already."""


async def connect_mux(
    host: str,
    port: int,
    *,
    salt: bytes,
    connect_s: Seconds = tcp.CONNECT_S,
    handshake_s: Seconds = HANDSHAKE_S,
) -> MuxEnd:
    """Dial the controller as a relay. The first message to send is a RelayHello.

    Args:
        host: a name or literal address.
        port: 1 … 65535.
        salt: the session salt, 16 bytes.
        connect_s: ceiling of the TCP connect.
        handshake_s: ceiling of the key exchange.

    Raises:
        TransientJoinError: nobody listens, no answer, unknown host, hung up.
        RefusedError: another salt (another run), another version, not flodl.
    """
    stream, keys, peer = await dial_controller(
        Channel.MUX, salt, at=(host, port), connect_s=connect_s, handshake_s=handshake_s
    )
    sock = stream.detach()
    sock.settimeout(None)
    return MuxEnd(sock=sock, keys=keys, peer=peer)


async def accept_mux(newcomer: Newcomer, *, salt: bytes) -> tuple[MuxEnd, RelayHello]:
    """Answer a relay that dialled in and take its first message.

    On return the peer has proved that it knows the salt, the port's budget is
    over, and the socket is the caller's: the port no longer closes it.

    Args:
        newcomer: what the port handed over.
        salt: the session salt, 16 bytes.

    Raises:
        BadFrameError: it is no relay of this run.
        anyio.EndOfStream, anyio.BrokenResourceError: it went away.
    """
    keys = await answer_handshake(newcomer, Channel.MUX, psk=salt)
    received = ReceiveCounter()
    frame = await read_first_frame(newcomer.stream, FrameOpener(keys.receive_hmac, received))
    hello = decode_untrusted(frame.kind, frame.payload)
    if not isinstance(hello, RelayHello):
        raise BadFrameError(
            f"the first message of {newcomer.peer} is a {type(hello).__name__}, not a RelayHello",
            fix="run the same flodl version on every host.",
        )
    newcomer.authenticated()
    sock = newcomer.stream.detach()
    sock.settimeout(None)
    return MuxEnd(sock=sock, keys=keys, peer=newcomer.peer, received=received), hello
