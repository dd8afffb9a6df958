"""The one TCP port: accepts, looks at the first bytes, and hands each connection to its consumer.

It knows no message. It peeks (never reads) four bytes, routes by them, inside TLS
where the run has it, and keeps every connection that has proved nothing within a
budget of time and number: junk, silence and floods cost their own connection only.
The consumers are async functions passed in; the launcher runs `serve` in a task
group.

    accepted ─peek─▶ routed ─first_message_arrived─▶ spoke ─authenticated─▶ link
        └──────────── budget over, crowded out, junk: closed and counted ─┘
"""

import errno
import math
import socket
import ssl
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import anyio.abc
import anyio.lowlevel

from flodl_core.errors import (
    ConfigError,
    LocalProtocolError,
    RemoteProtocolError,
    TokenRequiredError,
)
from flodl_core.net import clock, tcp
from flodl_core.net.addresses import Peer, join_host_port, limit_group, peer_of
from flodl_core.net.admission_gate import AdmissionGate, GateLimits
from flodl_core.net.byte_stream import ByteStream
from flodl_core.net.first_bytes import peek_route
from flodl_core.net.http_client import describe_owner
from flodl_core.net.port_statistics import DropNote, DropReason, FloodCollapser, PortStatistics
from flodl_core.net.port_tls import (
    PLAIN_ROUTES,
    TlsDropError,
    begin_tls,
    refuse_plain,
    refuse_tls,
)
from flodl_core.net.routing import Route
from flodl_core.net.tls_stream import TlsStream
from flodl_core.units import Seconds

HANDSHAKE_S: Final = 10.0
HTTP_S: Final = 30.0
"""Ceiling of a whole HTTP exchange; its request has a smaller one of its own."""
MAX_LINKS: Final = 4096

_ACCEPT_BATCH: Final = 32
_NO_DESCRIPTOR_PAUSE_S: Final = 0.05
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

PEER_ENDED: Final = (
    anyio.EndOfStream,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    ConnectionError,
)
"""How a peer's end shows; any other OSError in a consumer is ours and stops the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortConfig:
    """Where to listen and what a connection without a proof may take."""

    bind: str = "127.0.0.1"
    port: int = 1337
    """0 takes any free one."""
    source: str = "defaults"
    """Where bind and port come from, for error texts."""
    handshake_s: Seconds = HANDSHAKE_S
    max_links: int = MAX_LINKS
    limits: GateLimits = field(default_factory=GateLimits)
    tls: ssl.SSLContext | None = None
    """What agents and HTTP are spoken in; None speaks them plainly."""


class PortConnection:
    """One accepted connection, as its consumer sees it.

    Every byte the peer sent is still to be read from `stream`. When the
    consumer returns, the port closes the stream, unless it was detached.
    """

    def __init__(self, port: "Port", sock: socket.socket, *, number: int, peer: Peer) -> None:
        self.number = number
        self.peer = peer
        self.stream: ByteStream = ByteStream(sock)
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + port.config.handshake_s)
        self.route: Route | None = None
        self.has_spoken = False
        self.is_link = False
        self.drop_reason: DropReason | None = None
        self._port = port

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is around it; MUX seals what it carries by itself."""
        return isinstance(self.stream, TlsStream)

    def first_message_arrived(self) -> None:
        """Say that the peer sent a valid first message: others leave before it."""
        self.has_spoken = True
        self._port.note_spoken(self)

    def authenticated(self) -> None:
        """Say that the peer proved itself: the budget ends, and it is a link from here on."""
        self._port.note_link(self)


Handler: TypeAlias = Callable[[PortConnection], Awaitable[None]]


class Port:
    """One listening socket and the connections that have not become links yet.

    Args:
        config: address and limits.
        on_join: consumer of agents.
        on_mux: consumer of relays.
        on_http: consumer of HTTP requests.
        on_drop: told of connections let go, floods collapsed to a line.
        on_served: told of each link, and of each whole HTTP request.
    """

    def __init__(
        self,
        config: PortConfig,
        *,
        on_join: Handler,
        on_mux: Handler,
        on_http: Handler,
        on_drop: Callable[[DropNote], None] | None = None,
        on_served: Callable[[PortConnection], None] | None = None,
    ) -> None:
        self.config = config
        self._handlers = {Route.JOIN: on_join, Route.MUX: on_mux, Route.HTTP: on_http}
        self._on_drop = on_drop
        self._on_served = on_served
        self._listener: socket.socket | None = None
        self._gate = AdmissionGate(config.limits)
        self._open: dict[int, PortConnection] = {}
        self._links = 0
        self._accepted = 0
        self._counts: Counter[Route] = Counter()
        self._dropped: Counter[DropReason] = Counter()
        self._floods = FloodCollapser()

    def listen(self) -> Peer:
        """Bind and listen; return the address and the real port number.

        Raises:
            ConfigError: the address or port cannot be used. A port in use names
                its owner's run where that is a run of ours.
        """
        config = self.config
        try:
            self._listener = tcp.listen(config.bind, config.port, source=config.source)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            owner = describe_owner(config.bind, config.port)
            raise ConfigError(
                "port",
                config.port,
                f"{join_host_port(config.bind, config.port)} is in use by {owner}",
                source=config.source,
                fix="choose another port, or 0 for any free one, or end that process first.",
            ) from error
        return self.address

    @property
    def address(self) -> Peer:
        """Where the port listens.

        Raises:
            LocalProtocolError: `listen` was not called.
        """
        return peer_of(self._require_listener().getsockname())

    async def serve(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Accept and route connections until cancelled; then close all of them."""
        listener = self._require_listener()
        try:
            async with anyio.create_task_group() as tasks:
                task_status.started()
                while True:
                    await anyio.wait_readable(listener)
                    await self._accept_some(listener, tasks)
                    await anyio.lowlevel.checkpoint()
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def statistics(self) -> PortStatistics:
        """Return the counts so far."""
        return PortStatistics(
            accepted=self._accepted,
            joins=self._counts[Route.JOIN],
            muxes=self._counts[Route.MUX],
            https=self._counts[Route.HTTP],
            dropped={reason: self._dropped[reason] for reason in DropReason},
            open_unproven=self._gate.unproven,
            open_http=self._gate.http,
            open_links=self._links,
        )

    def drops(self) -> dict[str, int]:
        """Return how many connections were let go, by the reasons that occurred."""
        return {reason.value: count for reason, count in self._dropped.items()}

    def note_spoken(self, connection: PortConnection) -> None:
        """Called by the connection; see `PortConnection.first_message_arrived`."""
        self._gate.spoke(connection.number)
        if connection.route is Route.HTTP:
            self._tell_served(connection)

    def note_link(self, connection: PortConnection) -> None:
        """Called by the connection; see `PortConnection.authenticated`."""
        if connection.is_link or connection.route is None:
            return
        self._gate.remove(connection.number)
        if self._links >= self.config.max_links:
            self._drop(connection, DropReason.TOO_MANY_LINKS)
            connection.scope.cancel()
            return
        connection.is_link = True
        connection.scope.deadline = math.inf
        self._links += 1
        self._counts[connection.route] += 1
        self._tell_served(connection)

    def _tell_served(self, connection: PortConnection) -> None:
        if self._on_served is not None:
            self._on_served(connection)

    def _require_listener(self) -> socket.socket:
        if self._listener is None:
            raise LocalProtocolError("the port does not listen; listen() comes first")
        return self._listener

    async def _accept_some(self, listener: socket.socket, tasks: anyio.abc.TaskGroup) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                sock, sockaddr = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    raise
                self._crowd_out(self._gate.oldest())
                await anyio.sleep(_NO_DESCRIPTOR_PAUSE_S)
                return
            self._admit(sock, peer_of(sockaddr), tasks)

    def _admit(self, sock: socket.socket, peer: Peer, tasks: anyio.abc.TaskGroup) -> None:
        self._accepted += 1
        connection = PortConnection(self, sock, number=self._accepted, peer=peer)
        leavers = self._gate.admit(
            connection.number, group=limit_group(peer.address), is_loopback=peer.is_loopback
        )
        for leaver in leavers:
            self._crowd_out(leaver)
        self._open[connection.number] = connection
        tasks.start_soon(self._serve_connection, connection)

    def _crowd_out(self, number: int | None) -> None:
        leaver = None if number is None else self._open.get(number)
        if leaver is not None:
            self._drop(leaver, DropReason.CROWDED_OUT)
            leaver.scope.cancel()

    async def _serve_connection(self, connection: PortConnection) -> None:
        try:
            with connection.scope:
                await self._route(connection)
            if connection.scope.cancelled_caught:
                self._drop(connection, DropReason.SILENT)
        except TokenRequiredError as error:
            self._drop(connection, DropReason.NO_TOKEN, detail=error.happened)
        except TlsDropError as error:
            self._drop(connection, error.reason, detail=error.happened)
        except RemoteProtocolError as error:
            self._drop(connection, DropReason.BAD_HANDSHAKE, detail=error.happened)
        except TimeoutError:
            if connection.is_link:
                raise
            self._drop(connection, DropReason.SILENT)
        except PEER_ENDED:
            left_early = not connection.has_spoken
            self._drop(connection, DropReason.EARLY_END if left_early else DropReason.UNPROVEN)
        except Exception as error:
            if connection.is_link:
                raise
            self._drop(connection, DropReason.FAULT, detail=_describe_fault(error))
        finally:
            self._gate.remove(connection.number)
            self._open.pop(connection.number, None)
            self._links -= connection.is_link
            connection.stream.close()

    async def _route(self, connection: PortConnection) -> None:
        route = await peek_route(connection.stream.sock)
        tls = self.config.tls
        if route is Route.TLS:
            if tls is None:
                await refuse_tls(connection.stream)
            else:
                route = await begin_tls(connection, tls)
        elif tls is not None and route in PLAIN_ROUTES:
            await refuse_plain(connection.stream, route)
        connection.route = route
        if route is Route.HTTP:
            connection.scope.deadline = anyio.current_time() + HTTP_S
            self._counts[route] += 1
            for leaver in self._gate.is_http(connection.number):
                self._crowd_out(leaver)
        handler = self._handlers.get(route)
        if handler is None:
            self._drop(connection, DropReason.JUNK)
            return
        if route is not Route.HTTP:
            tcp.tune(connection.stream.sock)
        await handler(connection)

    def _drop(self, connection: PortConnection, reason: DropReason, *, detail: str = "") -> None:
        """Count why a connection goes, once; the end of a link or a request is no drop."""
        was_served = connection.is_link or connection.route is Route.HTTP
        ends_served = reason in (DropReason.CROWDED_OUT, DropReason.FAULT)
        if connection.drop_reason is not None or (was_served and not ends_served):
            return
        connection.drop_reason = reason
        self._dropped[reason] += 1
        note = self._floods.note(
            reason, clock.now(), address=connection.peer.address, detail=detail
        )
        if note is not None and self._on_drop is not None:
            self._on_drop(note)


def _describe_fault(error: Exception) -> str:
    """Return what was raised and where, on one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
