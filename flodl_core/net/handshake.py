"""The key exchange of JOIN and MUX connections over a byte stream, both ends.

What the bytes mean is `flodl_core.wire.handshake`; here they are sent and read,
randomness is drawn, and a failure becomes the error that a user can act on. A
server reads exactly the hello and exactly the first frame, so that a peer that
has proved nothing can make us hold a few KiB at most, and so that the socket
can be given to threads with every later byte still in it.
"""

import os
from dataclasses import dataclass
from typing import Final, Protocol

import anyio

from flodl_core.errors import (
    BadFrameError,
    RefusedError,
    TokenRequiredError,
    WrongCertificateError,
)
from flodl_core.net import tcp
from flodl_core.net.addresses import Peer, join_host_port, peer_of
from flodl_core.net.byte_stream import ByteStream
from flodl_core.net.tls import WrongFingerprintError, pinned_context
from flodl_core.net.tls_stream import TlsFailedError, TlsStream
from flodl_core.units import KIB, Seconds
from flodl_core.wire.frame import HEADER_BYTES, Frame, FrameOpener, parse_header_untrusted
from flodl_core.wire.handshake import (
    CLIENT_HELLO_BYTES,
    HANDSHAKE_VERSION,
    NONCE_BYTES,
    PRIVATE_KEY_BYTES,
    SERVER_HELLO_BYTES,
    Channel,
    ClientHandshake,
    ServerHandshake,
    SessionKeys,
)

HANDSHAKE_S: Final = 10.0
FIRST_FRAME_BYTES: Final = 64 * KIB
"""Largest first frame: a Knock, or a RelayHello with the signatures of its ranks."""

_VERSION_OFFSET: Final = 4
_LARGEST_STATUS: Final = 3


class NoTlsError(RefusedError):
    """We must speak TLS, and what answers does not."""


class Newcomer(Protocol):
    """A connection that has proved nothing yet; `port.PortConnection` is one."""

    @property
    def stream(self) -> ByteStream:
        """Where its bytes are."""
        ...

    @property
    def peer(self) -> Peer:
        """Where it comes from."""
        ...

    def first_message_arrived(self) -> None:
        """Called when its hello is a valid one."""
        ...

    def authenticated(self) -> None:
        """Called when its first frame verified."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DialTimes:
    """Ceilings of one dial."""

    connect_s: Seconds = tcp.CONNECT_S
    handshake_s: Seconds = HANDSHAKE_S
    """Of TLS, where it is spoken, and again of the key exchange."""


USUAL_TIMES: Final = DialTimes()


async def dial_controller(
    channel: Channel,
    psk: bytes | None,
    *,
    at: tuple[str, int],
    times: DialTimes,
    fingerprint: bytes | None = None,
) -> tuple[ByteStream, SessionKeys, Peer]:
    """Dial a controller and agree on keys; whatever fails closes the connection.

    Args:
        channel: which one to ask for.
        psk: the join token (JOIN; None asks for open admission) or the session salt (MUX).
        at: host and port.
        times: ceilings.
        fingerprint: of the run's certificate, 32 bytes; it makes TLS a must. None speaks plainly.

    Raises:
        TransientJoinError, RefusedError: as `tcp.open_tcp`, `enter_tls` and `greet`.
    """
    stream = await tcp.open_tcp(*at, connect_s=times.connect_s)
    try:
        peer = peer_of(stream.sock.getpeername())
        if fingerprint is not None:
            stream = await enter_tls(stream, fingerprint, at=at, handshake_s=times.handshake_s)
        client = ClientHandshake(
            channel,
            psk,
            nonce=os.urandom(NONCE_BYTES),
            private_key=os.urandom(PRIVATE_KEY_BYTES),
        )
        keys = await greet(stream, client, at=at, handshake_s=times.handshake_s)
    except OSError as error:
        stream.close()
        raise tcp.dial_error(error, *at) from error
    except BaseException:
        stream.close()
        raise
    return stream, keys, peer


async def answer_handshake(
    newcomer: Newcomer, channel: Channel, *, psk: bytes, open_admission: bool = False
) -> SessionKeys:
    """Read a client's hello and answer it.

    Args:
        newcomer: the connection; its budget is the caller's.
        channel: which one its first bytes announced.
        psk: the join token (JOIN) or the session salt (MUX).
        open_admission: whether a JOIN without the token is let in.

    Raises:
        TokenRequiredError: it has no token and is not let in without; it was told.
        BadFrameError: it sent no hello of ours, or one of another version.
        anyio.EndOfStream: it ended before its hello was whole.
        anyio.BrokenResourceError: the connection broke.
    """
    server = ServerHandshake(
        channel,
        psk,
        open_admission=open_admission,
        nonce=os.urandom(NONCE_BYTES),
        private_key=os.urandom(PRIVATE_KEY_BYTES),
    )
    hello = await read_exactly(newcomer.stream, CLIENT_HELLO_BYTES)
    reply, keys = server.reply_untrusted(hello)
    if keys is not None:
        newcomer.first_message_arrived()
    await newcomer.stream.send_all(reply)
    if keys is not None:
        return keys
    newcomer.stream.send_eof()
    if hello[_VERSION_OFFSET] != HANDSHAKE_VERSION:
        raise BadFrameError(
            f"{newcomer.peer} speaks wire version {hello[_VERSION_OFFSET]}, "
            f"this is {HANDSHAKE_VERSION}",
            fix="run the same flodl version on every host.",
        )
    raise TokenRequiredError(
        f"{newcomer.peer} asked to join without the token",
        fix="give `flodl join` there --token-file, or set FLODL_TOKEN.",
    )


async def read_first_frame(stream: ByteStream, opener: FrameOpener) -> Frame:
    """Read exactly one frame, of at most `FIRST_FRAME_BYTES`, and verify it.

    Raises:
        BadFrameError: it is too large, in pieces, or its tag does not hold: the
            peer holds another secret.
        anyio.EndOfStream: it ended before the frame was whole.
        anyio.BrokenResourceError: the connection broke.
    """
    header = parse_header_untrusted(await read_exactly(stream, HEADER_BYTES))
    if header.more or header.length > FIRST_FRAME_BYTES:
        raise BadFrameError(
            f"a first frame of {header.length} bytes or more came; "
            f"at most {FIRST_FRAME_BYTES} are taken before the peer proved itself",
            fix="run the same flodl version on every host.",
        )
    body = await read_exactly(stream, opener.body_bytes(header))
    frame = opener.open_untrusted(header, body)
    assert frame is not None, "a frame without more pieces is whole"
    return frame


async def enter_tls(
    stream: ByteStream, fingerprint: bytes, *, at: tuple[str, int], handshake_s: Seconds
) -> TlsStream:
    """Put TLS on a fresh connection and look at the certificate.

    Args:
        stream: a fresh connection to `at`; only what is returned is to be used.
        fingerprint: the one that the token names.
        at: the host and port that were dialled, for error texts.
        handshake_s: ceiling.

    Raises:
        WrongCertificateError: who answers is not the run that the token means.
        NoTlsError: it speaks no TLS 1.3; nothing is ever said plainly instead.
        NoAnswerError: nothing came within `handshake_s`.
        HungUpError: it ended the connection in the middle.
    """
    inner = TlsStream(stream.detach(), pinned_context(fingerprint), is_server=False)
    try:
        with anyio.fail_after(handshake_s):
            await inner.handshake()
    except BaseException as error:
        inner.close()
        raise _tls_error(error, *at, waited_s=handshake_s) from error
    return inner


def _tls_error(error: BaseException, host: str, port: int, *, waited_s: Seconds) -> BaseException:
    """Return what a failed TLS handshake means to whoever dialled; others as they are."""
    at = join_host_port(host, port)
    if isinstance(error, WrongFingerprintError):
        return WrongCertificateError(
            f"what answers at {at} has another certificate than the token names: another run, "
            "or somebody in between",
            fix="copy the file `token` of this run's directory anew from the launcher's machine.",
        )
    if isinstance(error, TlsFailedError):
        return NoTlsError(
            f"what answers at {at} speaks no TLS 1.3 ({error.reason}), and the token says that "
            "the run does",
            fix="copy the file `token` of this run's directory anew, or start the run with --tls.",
        )
    if isinstance(error, TimeoutError):
        return tcp.no_answer(host, port, waited_s=waited_s)
    if isinstance(error, anyio.EndOfStream | anyio.BrokenResourceError):
        return tcp.hung_up(host, port)
    return error


async def greet(
    stream: ByteStream, client: ClientHandshake, *, at: tuple[str, int], handshake_s: Seconds
) -> SessionKeys:
    """Send the client's hello and judge the answer.

    Args:
        stream: a fresh connection to `at`.
        client: the handshake, unused so far.
        at: the host and port that were dialled, for error texts.
        handshake_s: ceiling of the whole exchange.

    Raises:
        WrongTokenError: the two ends hold different secrets.
        TokenRequiredError: the controller admits nobody without the token.
        TlsRequiredError: the controller admits nobody without TLS.
        RefusedError: the controller speaks another version.
        NotFlodlError: what answered is no controller of ours.
        NoAnswerError: nothing came within `handshake_s`.
        HungUpError: the controller ended the connection before it answered.
    """
    host, port = at
    reply = bytearray()
    with anyio.move_on_after(handshake_s):
        try:
            await stream.send_all(client.hello())
            await _read_reply(stream, reply)
        except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
            if not reply:
                raise tcp.hung_up(host, port) from error
            raise tcp.not_flodl(host, port, detail=_quote(reply)) from error
    if not reply:
        raise tcp.no_answer(host, port, waited_s=handshake_s)
    if len(reply) < SERVER_HELLO_BYTES:
        raise tcp.not_flodl(host, port, detail=_quote(reply))
    try:
        return client.finish_untrusted(bytes(reply))
    except BadFrameError as error:
        raise tcp.not_flodl(host, port, detail=error.happened) from error


async def read_exactly(stream: ByteStream, nbytes: int) -> bytes:
    """Read `nbytes` and not one more.

    Raises:
        anyio.EndOfStream: the stream ended before that.
        anyio.BrokenResourceError: the connection broke.
    """
    data = bytearray()
    while len(data) < nbytes:
        data += await stream.receive(nbytes - len(data))
    return bytes(data)


async def _read_reply(stream: ByteStream, reply: bytearray) -> None:
    """Fill `reply`, or stop as soon as it cannot be one of ours."""
    while len(reply) < SERVER_HELLO_BYTES:
        reply += await stream.receive(SERVER_HELLO_BYTES - len(reply))
        if len(reply) > 1 and reply[1] > _LARGEST_STATUS:
            return


def _quote(reply: bytearray) -> str:
    return f"it answered {bytes(reply[:16])!r}"
