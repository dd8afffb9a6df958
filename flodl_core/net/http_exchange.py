"""One HTTP request and its answer on a connection, bounded in time and bytes.

h11 reads and writes the protocol; this file moves the bytes, keeps the budgets
and turns what a client does wrong into a status. It knows no route.
"""

import contextlib
import http
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import anyio
import h11

from flodl_core.net.byte_stream import ByteStream
from flodl_core.net.http_trust import Credentials
from flodl_core.net.port import PEER_ENDED, PortConnection
from flodl_core.units import KIB, Seconds

MAX_REQUEST_BYTES: Final = 8 * KIB
REQUEST_S: Final = 5.0
ANSWER_S: Final = 5.0

_BEARER: Final = "bearer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asks for; its body, if any, was read and is not used."""

    method: str
    path: str
    parameters: Mapping[str, str]
    credentials: Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What it gets."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = field(default=())


Answerer: TypeAlias = Callable[[PortConnection, Request], Awaitable[Response]]


class _RefusedRequest(Exception):
    """The request ends here, with this status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def serve_one(
    connection: PortConnection, answer: Answerer, *, request_s: Seconds = REQUEST_S
) -> int | None:
    """Read one request, write its answer and end the connection; a vanished client is fine.

    Args:
        connection: routed as HTTP, nothing read of it.
        answer: called with a whole request.
        request_s: ceiling of reading it.

    Returns:
        The status of the answer; None where the client went away before it had one.

    Raises:
        Exception: whatever `answer` raised; the client was told that it has no answer.
    """
    reader = _Reader(connection)
    try:
        try:
            request = await reader.read_request(request_s)
            connection.first_message_arrived()
            response = await answer(connection, request)
        except _RefusedRequest as refused:
            response = _refusal(refused.status, str(refused))
        except PEER_ENDED:
            raise
        except Exception:
            await _answer_fault(reader)
            raise
        await _write(reader, response)
    except PEER_ENDED:
        return None
    return response.status


async def _answer_fault(reader: "_Reader") -> None:
    with contextlib.suppress(*PEER_ENDED):
        await _write(reader, _refusal(500, "the run cannot answer; its log says why"))


class _Reader:
    """Reads the one request of a connection.

    Attributes:
        head: once it is here, whatever becomes of the rest.
    """

    def __init__(self, connection: PortConnection) -> None:
        self.connection = connection
        self.stream: ByteStream = connection.stream
        self.protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_REQUEST_BYTES)
        self.head: h11.Request | None = None

    @property
    def wants_body(self) -> bool:
        """Whether the answer has a body: to HEAD it has none, whatever the answer says."""
        return self.head is None or self.head.method != b"HEAD"

    async def read_request(self, request_s: Seconds) -> Request:
        """Read head and body.

        Raises:
            _RefusedRequest: too slow, too large, or no HTTP.
            anyio.EndOfStream, anyio.BrokenResourceError: the client went away.
        """
        protocol, received = self.protocol, 0
        with anyio.move_on_after(request_s):
            while True:
                event = _next_event(protocol)
                if isinstance(event, h11.Request):
                    self.head = event
                elif event is h11.NEED_DATA:
                    if protocol.they_are_waiting_for_100_continue:
                        await _go_on(self.stream, protocol)
                    data = await _receive(self.stream)
                    received += len(data)
                    if received > MAX_REQUEST_BYTES:
                        raise _RefusedRequest(
                            413, f"a request is {MAX_REQUEST_BYTES} bytes at most"
                        )
                    protocol.receive_data(data)
                elif isinstance(event, h11.EndOfMessage) and self.head is not None:
                    return _understand(self.connection, self.head)
                elif isinstance(event, h11.ConnectionClosed):
                    raise anyio.EndOfStream
        raise _RefusedRequest(408, f"the request took over {request_s:g} s")


def _next_event(protocol: h11.Connection) -> object:
    try:
        return protocol.next_event()
    except h11.RemoteProtocolError as error:
        raise _RefusedRequest(error.error_status_hint, str(error)) from error


async def _receive(stream: ByteStream) -> bytes:
    try:
        return await stream.receive(MAX_REQUEST_BYTES)
    except anyio.EndOfStream:
        return b""


async def _go_on(stream: ByteStream, protocol: h11.Connection) -> None:
    data = protocol.send(h11.InformationalResponse(status_code=100, headers=[]))
    await stream.send_all(data or b"")


def _understand(connection: PortConnection, head: h11.Request) -> Request:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    if "content-length" in headers and "transfer-encoding" in headers:
        raise _RefusedRequest(400, "the request says its length in two ways")
    try:
        authority, path, query = _split_target(head.target.decode("ascii"))
        parameters = dict(parse_qsl(query, max_num_fields=32))
    except ValueError as error:
        raise _RefusedRequest(400, "the request's target is no address") from error
    if authority is not None and authority != headers.get("host"):
        raise _RefusedRequest(400, "the request's target and its Host are two addresses")
    return Request(
        method=head.method.decode("latin-1"),
        path=path,
        parameters=parameters,
        credentials=Credentials(
            peer_is_loopback=connection.peer.is_loopback,
            host=headers.get("host"),
            origin=headers.get("origin"),
            bearer=_bearer(headers.get("authorization")),
        ),
    )


def _split_target(target: str) -> tuple[str | None, str, str]:
    """Return authority, path and query of a request's target; a path is taken as it stands.

    Raises:
        ValueError: it is neither a path nor an address of HTTP.
    """
    if target.startswith("/"):
        path, _, query = target.partition("?")
        return None, path, query
    address = urlsplit(target)
    if address.scheme not in ("http", "https") or not address.netloc:
        raise ValueError(target)
    return address.netloc, address.path or "/", address.query


def _bearer(authorization: str | None) -> str | None:
    """Return the token that a request shows: empty where it shows something else, or none."""
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == _BEARER else ""


async def _write(reader: _Reader, response: Response) -> None:
    protocol = reader.protocol
    if protocol.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
        return
    head = h11.Response(
        status_code=response.status,
        reason=http.HTTPStatus(response.status).phrase.encode(),
        headers=[
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Connection", "close"),
            *response.headers,
        ],
    )
    body = response.body if reader.wants_body else b""
    parts = (head, h11.Data(data=body), h11.EndOfMessage())
    with anyio.move_on_after(ANSWER_S):
        await reader.stream.send_last(b"".join(protocol.send(part) or b"" for part in parts))


def _refusal(status: int, reason: str) -> Response:
    return Response(
        status=status,
        content_type="application/json; charset=utf-8",
        body=json.dumps({"error": reason}).encode(),
    )
