"""Which of our protocols a connection speaks, judged by its first four bytes.

A pure function of bytes. The bytes are looked at and left where they are: the
consumer reads and checks its own magic again.
"""

from enum import StrEnum
from typing import Final

PEEK_BYTES: Final = 4
"""No route needs more, and every client of ours sends at least this many at once."""


class Route(StrEnum):
    """Where a new connection goes."""

    JOIN = "join"
    MUX = "mux"
    HTTP = "http"
    TLS = "tls"
    """A TLS ClientHello, as most begin; what is spoken inside is routed again."""
    JUNK = "junk"


_MAGICS: Final = {b"JOIN": Route.JOIN, b"MUX1": Route.MUX}
_HTTP_STARTS: Final = frozenset(
    {b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"TRAC", b"CONN"}
)
_TLS_HANDSHAKE_RECORD: Final = b"\x16\x03"


def route_untrusted(first: bytes) -> Route | None:
    """Return where a connection that begins with `first` goes.

    Args:
        first: what has arrived so far, at most `PEEK_BYTES` of it matter.

    Returns:
        The route, or None while `first` may still become one of ours.
    """
    start = first[:PEEK_BYTES]
    if start in _MAGICS:
        return _MAGICS[start]
    if start in _HTTP_STARTS:
        return Route.HTTP
    if start.startswith(_TLS_HANDSHAKE_RECORD):
        return Route.TLS
    if len(start) < PEEK_BYTES and _may_become_ours(start):
        return None
    return Route.JUNK


def _may_become_ours(start: bytes) -> bool:
    candidates = (*_MAGICS, *_HTTP_STARTS, _TLS_HANDSHAKE_RECORD)
    return any(candidate.startswith(start) for candidate in candidates)
