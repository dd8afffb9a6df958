"""Opening a TCP connection without blocking the event loop, each failure with its own name."""

import errno
import socket
from typing import Final

import anyio

from flodl_core.net import tcp
from flodl_core.net.byte_stream import ByteStream
from flodl_core.units import Seconds

_IN_PROGRESS: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY})


async def open_tcp(host: str, port: int, *, connect_s: Seconds = tcp.CONNECT_S) -> ByteStream:
    """Connect to `host:port`, trying each of its addresses in turn.

    Args:
        host: a name or a literal address, IPv6 without brackets.
        port: 1 … 65535.
        connect_s: ceiling over all addresses.

    Raises:
        NobodyListensError: the machine refused the connection.
        UnknownHostError: the name has no address.
        NoAnswerError: nothing came back within `connect_s`, or no road leads there.
    """
    failure: OSError | None = None
    with anyio.move_on_after(connect_s):
        try:
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise tcp.dial_error(error, host, port) from error
        for family, _, _, _, sockaddr in found:
            try:
                return await _open_one(family, sockaddr)
            except OSError as error:
                failure = error
    if failure is not None:
        raise tcp.dial_error(failure, host, port) from failure
    raise tcp.no_answer(host, port, waited_s=connect_s)


async def _open_one(family: int, sockaddr: tuple[object, ...]) -> ByteStream:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        tcp.tune(sock)
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
