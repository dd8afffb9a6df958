"""A new connection's first bytes, looked at and left where they are.

The kernel keeps them; a peer that sends them one by one is waited for with a
pause that grows. The port drives it, within a connection's budget.
"""

import select
import socket
from typing import Final

import anyio

from flodl_core.net.routing import PEEK_BYTES, Route, route_untrusted

_SHORT_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.1


async def peek_route(sock: socket.socket) -> Route:
    """Return the route of a connection, leaving its bytes in the socket.

    Raises:
        anyio.EndOfStream: it ended before it could be routed.
        anyio.BrokenResourceError: it was reset.
    """
    low_water = getattr(socket, "SO_RCVLOWAT", None)
    if low_water is not None:
        sock.setsockopt(socket.SOL_SOCKET, low_water, PEEK_BYTES)
    pause_s = _SHORT_PAUSE_S
    while True:
        try:
            first = sock.recv(PEEK_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            await anyio.wait_readable(sock)
            continue
        except OSError as error:
            raise anyio.BrokenResourceError from error
        route = route_untrusted(first) if first else None
        if route is not None:
            break
        if not first or _peer_half_closed(sock):
            raise anyio.EndOfStream
        await anyio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    if low_water is not None:
        sock.setsockopt(socket.SOL_SOCKET, low_water, 1)
    return route


def _peer_half_closed(sock: socket.socket) -> bool:
    half_closed = getattr(select, "POLLRDHUP", 0)
    if not half_closed:
        return False
    poll = select.poll()
    poll.register(sock, half_closed)
    return bool(poll.poll(0))
