"""TLS at the port: the handshake where it is spoken, a named refusal where one end lacks it.

    the run speaks TLS   ClientHello ─▶ handshake ─▶ JOIN or HTTP inside
                         JOIN, HTTP  ─▶ told so in their own protocol, closed
    the run does not     ClientHello ─▶ a TLS alert, closed

MUX has keys of its own, for everything that it carries, and is no part of this. A
peer that is told why has proved nothing: it costs a read and a write. The port
drives it within the connection's budget and counts the reason.
"""

import json
import ssl
from typing import Final, Protocol

import anyio

from flodl_core.errors import RemoteProtocolError
from flodl_core.net.byte_stream import ByteStream
from flodl_core.net.port_statistics import DropReason
from flodl_core.net.routing import PEEK_BYTES, Route, route_untrusted
from flodl_core.net.tls_stream import TlsFailedError, TlsStream
from flodl_core.units import KIB
from flodl_core.wire.handshake import tls_refusal

PLAIN_ROUTES: Final = frozenset({Route.JOIN, Route.HTTP})
"""What a run with TLS takes inside it only."""

_LEFT: Final = "it left at the sight of the certificate; it may know another run's token"
_READ_BYTES: Final = 8 * KIB
_NO_TLS_HERE: Final = b"\x15\x03\x03\x00\x02\x02\x46"
"""A fatal alert, protocol_version: this end speaks no version of TLS."""
_HTTP_BODY: Final = json.dumps(
    {
        "error": "this run speaks TLS only",
        "fix": "ask by https; `flodl` does so where it reads the run's token, from its run "
        "directory or --token-file, because the certificate's fingerprint is in it.",
    }
).encode()
_HTTP_REFUSAL: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\n"
    b"Content-Length: %d\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n%s"
) % (len(_HTTP_BODY), _HTTP_BODY)


class TlsDropError(RemoteProtocolError):
    """A connection is let go because of TLS; `reason` is what it is counted as."""

    def __init__(self, reason: DropReason, happened: str) -> None:
        super().__init__(happened)
        self.reason = reason


class Dialled(Protocol):
    """A connection that was accepted; `port.PortConnection` is one."""

    stream: ByteStream


async def begin_tls(connection: Dialled, context: ssl.SSLContext) -> Route:
    """Do the handshake and return what is spoken inside; the stream is the inner one from here on.

    Raises:
        TlsDropError: the handshake failed, the peer left at it, or speaks nothing of ours.
        anyio.EndOfStream, anyio.BrokenResourceError: it went away before it had said a hello.
    """
    outer = connection.stream
    stream = TlsStream(outer.detach(), context, is_server=True)
    connection.stream = stream
    try:
        await stream.handshake()
    except TlsFailedError as error:
        why = f"its TLS handshake failed: {error.reason}"
        raise TlsDropError(DropReason.BAD_TLS, why) from error
    except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
        if stream.has_spoken:
            raise TlsDropError(DropReason.DISTRUSTED, _LEFT) from error
        raise
    try:
        return await _inner_route(stream)
    except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise TlsDropError(DropReason.DISTRUSTED, _LEFT) from error


async def refuse_tls(stream: ByteStream) -> None:
    """Tell a peer that begins TLS that there is none here.

    Raises:
        TlsDropError: always.
    """
    await stream.receive(_READ_BYTES)
    await stream.send_last(_NO_TLS_HERE)
    raise TlsDropError(DropReason.TLS, "it began a TLS handshake, and this run has no --tls")


async def refuse_plain(stream: ByteStream, route: Route) -> None:
    """Tell a peer without TLS that this run asks for it.

    Raises:
        TlsDropError: always.
        anyio.EndOfStream, anyio.BrokenResourceError: it went away first.
    """
    await stream.receive(_READ_BYTES)
    await stream.send_last(tls_refusal() if route is Route.JOIN else _HTTP_REFUSAL)
    raise TlsDropError(DropReason.PLAIN, f"it spoke {route.value} without TLS")


async def _inner_route(stream: TlsStream) -> Route:
    first = b""
    while (route := route_untrusted(first) if first else None) is None:
        first = await stream.peek(PEEK_BYTES)
    if route not in PLAIN_ROUTES:
        raise TlsDropError(DropReason.JUNK, "what it spoke inside TLS is no protocol of ours")
    return route
