"""TCP sockets: listening, dialling, the options all of ours have, an error for each failure.

They are made here and nowhere else, raw and non-blocking, so that whoever gets
one decides how to wait on it. Nothing is said over them here.
"""

import contextlib
import errno
import socket
from collections.abc import Sequence
from typing import Final, NoReturn

import anyio

from flodl_core.errors import ConfigError, RefusedError, TransientJoinError
from flodl_core.net.addresses import LARGEST_PORT, join_host_port
from flodl_core.net.byte_stream import ByteStream
from flodl_core.units import Seconds

BACKLOG: Final = 1024
CONNECT_S: Final = 10.0

_KEEPALIVE_IDLE_S: Final = 10
_KEEPALIVE_INTERVAL_S: Final = 5
_KEEPALIVE_PROBES: Final = 4
_USER_TIMEOUT_MS: Final = 30_000
_IN_PROGRESS: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY})


class NobodyListensError(TransientJoinError):
    """The machine answered that nothing listens at that port."""


class NoAnswerError(TransientJoinError):
    """Nothing came back: wrong address, a firewall, or the machine is off."""


class UnknownHostError(TransientJoinError):
    """The host name has no address."""


class HungUpError(TransientJoinError):
    """The controller closed the connection before it answered."""


class NotFlodlError(RefusedError):
    """Something listens there, but it does not speak our protocol."""


def tune(sock: socket.socket) -> None:
    """Set no-delay and keepalive; a peer that vanished is noticed within half a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


def listen(bind: str, port: int, *, source: str) -> socket.socket:
    """Return a listening, non-blocking socket.

    Args:
        bind: an address of this machine or a name of one; `::` takes IPv4 too.
        port: 0 for any free one.
        source: where the two settings come from, for the error text.

    Raises:
        ConfigError: a port outside 0 … 65535, an address that is not this
            machine's, a port that needs more rights.
        OSError: errno EADDRINUSE, when somebody else listens there.
    """
    if not 0 <= port <= LARGEST_PORT:
        raise ConfigError(
            "port",
            port,
            f"a TCP port is 0 to {LARGEST_PORT}",
            source=source,
            fix="choose one between 1024 and 65535, or 0 for any free one.",
        )
    family, sockaddr = _resolve_bind(bind, port, source=source)
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        _raise_bind_error(error, bind, port, source=source)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(bind != "::"))
        sock.bind(sockaddr)
        sock.listen(BACKLOG)
        sock.settimeout(0)
    except OSError as error:
        sock.close()
        _raise_bind_error(error, bind, port, source=source)
    return sock


async def open_tcp(host: str, port: int, *, connect_s: Seconds = CONNECT_S) -> ByteStream:
    """Connect to `host:port`, trying each of its addresses in turn.

    Args:
        host: a name or a literal address, IPv6 without brackets.
        port: 1 … 65535.
        connect_s: ceiling over all addresses; one that does not answer leaves the others theirs.

    Raises:
        NobodyListensError: the machine refused the connection.
        UnknownHostError: the name has no address.
        NoAnswerError: nothing came back within `connect_s`, or no road leads there.
    """
    until = anyio.current_time() + connect_s
    found = None
    with anyio.move_on_after(connect_s):
        try:
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise dial_error(error, host, port) from error
    if found is None:
        raise UnknownHostError(
            f"the host name {host} was not resolved within {connect_s:g} s",
            fix="look whether the name server answers, or write the IP address.",
        )
    addresses = [(family, sockaddr) for family, _, _, _, sockaddr in found]
    try:
        stream = await _open_first(addresses, until - anyio.current_time())
    except OSError as error:
        raise dial_error(error, host, port) from error
    if stream is None:
        raise no_answer(host, port, waited_s=connect_s)
    return stream


async def _open_first(
    addresses: Sequence[tuple[int, tuple[object, ...]]], within_s: Seconds
) -> ByteStream | None:
    """Connect to the first address that answers; None if none does, each in its part of the time.

    Raises:
        OSError: the last one that refused.
    """
    failure: OSError | None = None
    until = anyio.current_time() + within_s
    for left, (family, sockaddr) in zip(range(len(addresses), 0, -1), addresses, strict=True):
        try:
            with anyio.move_on_after(max(0.0, until - anyio.current_time()) / left):
                return await _open_one(family, sockaddr)
        except OSError as error:
            failure = error
    if failure is not None:
        raise failure
    return None


def dial_error(error: OSError, host: str, port: int) -> TransientJoinError:
    """Return what a failed connect means to whoever dialled `host:port`."""
    at = join_host_port(host, port)
    if isinstance(error, ConnectionRefusedError):
        return NobodyListensError(
            f"nothing listens at {at}",
            fix="start `flodl headless` there, or correct the port.",
        )
    if isinstance(error, socket.gaierror):
        return UnknownHostError(
            f"the host name {host} has no address",
            fix="correct the name, or write the IP address.",
        )
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return hung_up(host, port)
    return no_answer(host, port, waited_s=None)


def no_answer(host: str, port: int, *, waited_s: Seconds | None) -> NoAnswerError:
    """Return the error of silence, after `waited_s` if that is known."""
    after = "" if waited_s is None else f" within {waited_s:g} s"
    return NoAnswerError(
        f"no answer from {join_host_port(host, port)}{after}",
        fix="check the address, that the machine is on, and that its firewall lets the port in.",
    )


def hung_up(host: str, port: int) -> HungUpError:
    """Return the error of a connection that ended before the controller's answer."""
    return HungUpError(
        f"{join_host_port(host, port)} closed the connection before it answered",
        fix="look into the controller's events: it may be crowded, ending, or not flodl.",
    )


def not_flodl(host: str, port: int, *, detail: str) -> NotFlodlError:
    """Return the error of an answer that is not ours; `detail` says what was wrong with it."""
    return NotFlodlError(
        f"what listens at {join_host_port(host, port)} does not speak flodl's protocol: {detail}",
        fix="correct the address or the port; the launcher prints both in its first line.",
    )


async def _open_one(family: int, sockaddr: tuple[object, ...]) -> ByteStream:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        tune(sock)
        code = sock.connect_ex(sockaddr)
        if code in _IN_PROGRESS:
            await anyio.wait_writable(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, "connect")
    except BaseException:
        sock.close()
        raise
    return ByteStream(sock)


def _resolve_bind(bind: str, port: int, *, source: str) -> tuple[int, tuple[object, ...]]:
    try:
        found = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(
            "bind",
            bind,
            f"it is no address ({error.strerror})",
            source=source,
            fix="write an address of this machine, such as 127.0.0.1, 0.0.0.0 or ::.",
        ) from error
    family, _, _, _, sockaddr = found[0]
    return family, sockaddr


def _raise_bind_error(error: OSError, bind: str, port: int, *, source: str) -> NoReturn:
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        raise ConfigError(
            "bind",
            bind,
            "no interface of this machine has that address",
            source=source,
            fix="use 127.0.0.1 for this machine only, or 0.0.0.0 or :: for every interface.",
        ) from error
    if error.errno == errno.EACCES:
        raise ConfigError(
            "port",
            port,
            "this user may not listen there",
            source=source,
            fix="choose a port above 1023, or 0 for any free one.",
        ) from error
    raise error
