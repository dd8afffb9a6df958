"""Who may read a run over HTTP and act on it: pure verdicts, and the fact about a socket they need.

An action without the operator token is trusted only if it comes from this
machine, from a socket of this very user, and not from a web page: the Host must
be this machine's own name and there must be no Origin.
"""

import hmac
import ipaddress
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flodl_core.net.addresses import Peer, peer_of

_OWN_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED_PREFIX: Final = "0000000000000000FFFF0000"
_NO_INODE: Final = "0"
_IS_A_PAGE: Final = "requests made by a web page are refused"
_IS_ANOTHER: Final = "that is not the operator token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a request shows of where it comes from."""

    peer_is_loopback: bool
    host: str | None
    """The Host header, port included."""
    origin: str | None
    """The Origin header, which only browsers send."""
    bearer: str | None
    """The token of an `Authorization: Bearer` header; empty where the header says another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustPolicy:
    """What this run asks for."""

    operator_token: str
    require_token: bool = False
    """Ask for the token for all that tells of the run or acts on it, on this machine too."""
    own_names: frozenset[str] = frozenset()
    """What this machine is called besides localhost and its addresses, in lower case."""


def trick_of_a_page(credentials: Credentials, policy: TrustPolicy) -> str | None:
    """Return why a request may be a web page's doing, or None if it is not.

    A page can have a name of its own resolve to loopback and then read what it finds there,
    without an Origin; only the Host tells. It cannot do so with an address.
    """
    if credentials.origin is not None:
        return _IS_A_PAGE
    if not credentials.peer_is_loopback or _holds_token(credentials, policy):
        return None
    if credentials.host is None or _may_be_here(credentials.host, policy.own_names):
        return None
    return "without the operator token, Host must be localhost or an address of this machine"


def distrust_of_reading(credentials: Credentials, policy: TrustPolicy) -> str | None:
    """Return why a GET is not answered, or None if it is."""
    if not policy.require_token or _holds_token(credentials, policy):
        return None
    if credentials.bearer is not None:
        return _IS_ANOTHER
    return "this run asks for the operator token"


def distrust_of_acting(
    credentials: Credentials, policy: TrustPolicy, *, is_same_user: Callable[[], bool]
) -> str | None:
    """Return why a POST is refused, or None if it is trusted.

    Args:
        credentials: of the request.
        policy: of this run.
        is_same_user: whether the peer's socket belongs to our user; asked last,
            because finding out takes a moment.
    """
    if credentials.origin is not None:
        return _IS_A_PAGE
    if credentials.bearer is not None:
        return None if _holds_token(credentials, policy) else _IS_ANOTHER
    if policy.require_token or not credentials.peer_is_loopback:
        return "the operator token is needed"
    if not _names_this_machine(credentials.host):
        return "without the operator token, Host must be localhost, 127.0.0.1 or [::1]"
    if not is_same_user():
        return "the connection belongs to another user; the operator token is needed"
    return None


def peer_is_same_user(sock: socket.socket) -> bool:
    """Whether the other end of a loopback connection is a socket of our own user.

    Looks the peer's socket up in the kernel's tables; False where there are none.
    Blocking, for a few milliseconds on a machine with many connections.
    """
    try:
        theirs, ours = sock.getpeername(), sock.getsockname()
    except OSError:
        return False
    wanted = (_table_key(peer_of(theirs)), _table_key(peer_of(ours)))
    own_uid = str(os.getuid())
    for table in _TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            local, remote, uid, inode = fields[1], fields[2], fields[7], fields[9]
            if (_plain(local), _plain(remote)) == wanted and inode != _NO_INODE:
                return uid == own_uid
    return False


def _holds_token(credentials: Credentials, policy: TrustPolicy) -> bool:
    return credentials.bearer is not None and hmac.compare_digest(
        credentials.bearer.encode(), policy.operator_token.encode()
    )


def _names_this_machine(host: str | None) -> bool:
    return host is not None and _name_in(host) in _OWN_NAMES


def _may_be_here(host: str, own_names: frozenset[str]) -> bool:
    name = _name_in(host)
    if name is None:
        return False
    if name in _OWN_NAMES or name in own_names:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _name_in(host: str) -> str | None:
    """Return the name in a Host header, in lower case; None if its port is no number."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host.lower()
    return name.lower() if port.isdigit() else None


def _table_key(peer: Peer) -> str:
    """Return address and port as the kernel prints them: words in host byte order, in hex."""
    is_v6 = ":" in peer.address
    packed = socket.inet_pton(
        socket.AF_INET6 if is_v6 else socket.AF_INET, peer.address.partition("%")[0]
    )
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{text}:{peer.port:04X}"


def _plain(entry: str) -> str:
    """Unwrap a v4-mapped entry of the tcp6 table."""
    return entry.removeprefix(_MAPPED_PREFIX)
