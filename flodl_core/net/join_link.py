"""The JOIN connection: messages between an agent and the controller, tagged and numbered.

An async link with one reader and any number of writers, who take turns. It
carries no bulk and has no threads. What the messages mean is the ledger's and
the roles' business; this file seals, opens and times them.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import anyio

from flodl_core.errors import BadFrameError, LocalProtocolError
from flodl_core.messages.join import Accept
from flodl_core.net.addresses import Peer
from flodl_core.net.byte_stream import ByteStream
from flodl_core.net.handshake import (
    USUAL_TIMES,
    DialTimes,
    Newcomer,
    answer_handshake,
    dial_controller,
    read_first_frame,
)
from flodl_core.wire.codec import decode_untrusted, encode
from flodl_core.wire.frame import Frame, FrameOpener, FrameSealer
from flodl_core.wire.handshake import (
    Channel,
    SessionKeys,
)
from flodl_core.wire.salt import SaltOpener, SaltSealer

_UNFINISHED: Final = "the connection is closed; look at the other end's log for why it ended."


class JoinLink:
    """One authenticated JOIN connection.

    Args:
        stream: the connection, after its handshake.
        keys: this end's keys.
        peer: the other end.
        on_authenticated: called once, when the peer's first frame verified; the
            first frame is then bounded to a few KiB. None on the dialling end.
    """

    def __init__(
        self,
        stream: ByteStream,
        keys: SessionKeys,
        *,
        peer: Peer,
        on_authenticated: Callable[[], None] | None = None,
    ) -> None:
        self.peer = peer
        self._stream = stream
        self._sealer = FrameSealer(keys.send_hmac)
        self._opener = FrameOpener(keys.receive_hmac)
        self._salt_sealer = SaltSealer(keys.send_gcm)
        self._salt_opener = SaltOpener(keys.receive_gcm)
        self._arrived: deque[Frame] = deque()
        self._turn = anyio.Lock()
        self._on_authenticated = on_authenticated

    async def send(self, message: object) -> None:
        """Write one message; writers take turns.

        A call that is cancelled or fails half-way closes the link, because the
        peer could make no sense of what would follow.

        Raises:
            LocalProtocolError: it is no message, or an Accept with a salt.
            anyio.BrokenResourceError: the connection is gone, or the peer took
                nothing for 30 s.
            anyio.ClosedResourceError: the link was closed here.
        """
        if isinstance(message, Accept) and message.salt is not None:
            raise LocalProtocolError(
                "an Accept with a salt was sent unsealed", fix="call send_accept."
            )
        await self._write(message)

    async def send_accept(self, accept: Accept) -> None:
        """Write an Accept whose salt, if it has one, only this connection's peer can open.

        Raises:
            anyio.BrokenResourceError, anyio.ClosedResourceError: as `send`.
        """
        if accept.salt is not None:
            accept = replace(accept, salt=self._salt_sealer.seal(accept.salt))
        await self._write(accept)

    async def receive(self) -> object:
        """Return the next message, the salt of an Accept opened. Cancelling loses nothing.

        The one exception is the first message on the accepting end.

        Raises:
            anyio.EndOfStream: the peer ended or vanished between two messages.
            BadFrameError: what came is no message of ours, or broke off inside one.
            anyio.ClosedResourceError: the link was closed here.
        """
        while True:
            while self._arrived:
                frame = self._arrived.popleft()
                message = decode_untrusted(frame.kind, frame.payload)
                if message is not None:
                    return self._open_salt(message)
            await self._read_more()

    async def aclose(self) -> None:
        """Close the connection; a reader or writer that waits gets an error."""
        self._stream.close()

    async def _write(self, message: object) -> None:
        kind, payload = encode(message)
        async with self._turn:
            try:
                await self._stream.send_all(self._sealer.seal(kind, payload))
            except TimeoutError as error:
                self._stream.close()
                raise anyio.BrokenResourceError from error
            except BaseException:
                self._stream.close()
                raise

    async def _read_more(self) -> None:
        if self._on_authenticated is not None:
            self._arrived.append(await read_first_frame(self._stream, self._opener))
            self._on_authenticated()
            self._on_authenticated = None
            return
        try:
            data = await self._stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
            if self._opener.at_boundary:
                raise anyio.EndOfStream from error
            raise BadFrameError(
                f"{self.peer} broke off inside a message", fix=_UNFINISHED
            ) from error
        self._arrived.extend(self._opener.feed_untrusted(data))

    def _open_salt(self, message: object) -> object:
        if isinstance(message, Accept) and message.salt is not None:
            return replace(message, salt=self._salt_opener.open_untrusted(message.salt))
        return message


async def connect_join(
    host: str,
    port: int,
    *,
    token: bytes | None,
    fingerprint: bytes | None = None,
    times: DialTimes = USUAL_TIMES,
) -> JoinLink:
    """Dial a controller and agree on keys.

    Args:
        host: a name or literal address.
        port: 1 … 65535.
        token: 16 bytes; None asks for open admission.
        fingerprint: of the run's certificate, 32 bytes; it makes TLS a must. None speaks plainly.
        times: ceilings.

    Raises:
        TransientJoinError: nobody listens, no answer, unknown host, hung up
            (a class each); a later dial may succeed.
        RefusedError: another token, token required, TLS required, another
            certificate, no TLS, another version, not flodl (a class each); a
            later dial changes nothing.
    """
    stream, keys, peer = await dial_controller(
        Channel.JOIN, token, at=(host, port), times=times, fingerprint=fingerprint
    )
    return JoinLink(stream, keys, peer=peer)


async def accept_join(newcomer: Newcomer, *, token: bytes, open_admission: bool) -> JoinLink:
    """Answer an agent that dialled in; the port's budget is the ceiling.

    The link is authenticated, and the budget over, when its first `receive`
    returns.

    Args:
        newcomer: what the port handed over.
        token: the run's join token, 16 bytes.
        open_admission: whether an agent without the token is let in.

    Raises:
        TokenRequiredError: it has no token; it was told.
        RemoteProtocolError: it is no agent of ours, or has another version.
        anyio.EndOfStream, anyio.BrokenResourceError: it went away.
    """
    keys = await answer_handshake(newcomer, Channel.JOIN, psk=token, open_admission=open_admission)
    return JoinLink(
        newcomer.stream, keys, peer=newcomer.peer, on_authenticated=newcomer.authenticated
    )
