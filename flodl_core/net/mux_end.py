"""One end of a fresh MUX connection: its socket, keys and counters, before threads take it over.

The handshake runs on the event loop, so that ten thousand silent peers cost no
thread; then the socket is made blocking and given to a `MuxLink`.
"""

import socket
from dataclasses import dataclass, field

from flodl_core.errors import BadFrameError, kind_of
from flodl_core.messages.mux import RelayHello
from flodl_core.net.addresses import Peer
from flodl_core.net.handshake import (
    USUAL_TIMES,
    DialTimes,
    Newcomer,
    answer_handshake,
    dial_controller,
    read_first_frame,
)
from flodl_core.wire.codec import decode_untrusted
from flodl_core.wire.frame import FrameOpener, FrameSealer, ReceiveCounter, SendCounter
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
    is_sealed: bool = False
    """Whether messages are sealed as buckets are, and not only tagged; the same on both ends."""

    def sealer(self, counter: SendCounter) -> FrameSealer:
        """Return what makes frames of messages, numbered by the direction's counter."""
        gcm_key = self.keys.send_gcm if self.is_sealed else None
        return FrameSealer(self.keys.send_hmac, counter, gcm_key=gcm_key)

    def opener(self) -> FrameOpener:
        """Return what opens frames of messages."""
        gcm_key = self.keys.receive_gcm if self.is_sealed else None
        return FrameOpener(self.keys.receive_hmac, self.received, gcm_key=gcm_key)


async def connect_mux(
    host: str,
    port: int,
    *,
    salt: bytes,
    is_sealed: bool = False,
    times: DialTimes = USUAL_TIMES,
) -> MuxEnd:
    """Dial the controller as a relay. The first message to send is a RelayHello.

    Args:
        host: a name or literal address.
        port: 1 … 65535.
        salt: the session salt, 16 bytes.
        is_sealed: whether the run seals messages too, as the envelope says.
        times: ceilings.

    Raises:
        TransientJoinError: nobody listens, no answer, unknown host, hung up.
        RefusedError: another salt (another run), another version, not flodl.
    """
    stream, keys, peer = await dial_controller(Channel.MUX, salt, at=(host, port), times=times)
    sock = stream.detach()
    sock.settimeout(None)
    return MuxEnd(sock=sock, keys=keys, peer=peer, is_sealed=is_sealed)


async def accept_mux(
    newcomer: Newcomer, *, salt: bytes, is_sealed: bool = False
) -> tuple[MuxEnd, RelayHello]:
    """Answer a relay that dialled in and take its first message.

    On return the peer has proved that it knows the salt, the port's budget is
    over, and the socket is the caller's: the port no longer closes it.

    Args:
        newcomer: what the port handed over.
        salt: the session salt, 16 bytes.
        is_sealed: whether the run seals messages too.

    Raises:
        BadFrameError: it is no relay of this run.
        anyio.EndOfStream, anyio.BrokenResourceError: it went away.
    """
    keys = await answer_handshake(newcomer, Channel.MUX, psk=salt)
    sock = newcomer.stream.sock
    end = MuxEnd(sock=sock, keys=keys, peer=newcomer.peer, is_sealed=is_sealed)
    frame = await read_first_frame(newcomer.stream, end.opener())
    hello = decode_untrusted(frame.kind, frame.payload)
    if not isinstance(hello, RelayHello):
        raise BadFrameError(
            f"the first message of {newcomer.peer} is {kind_of(hello)}, not a RelayHello",
            fix="run the same flodl version on every host.",
        )
    newcomer.authenticated()
    newcomer.stream.detach()
    sock.settimeout(None)
    return end, hello
