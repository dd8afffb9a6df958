"""Network addresses as text: parsing, joining, and the peer at the other end.

Pure functions of strings. A v4-mapped IPv6 address (`::ffff:10.0.0.7`) is always
judged by the address inside it, because a dual-stack port reports every IPv4
peer that way.
"""

import ipaddress
from dataclasses import dataclass
from typing import Final

from flodl_core.config.addresses import is_loopback_address
from flodl_core.errors import ConfigError

LARGEST_PORT: Final = 65_535

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a TCP connection, with a mapped IPv4 address unwrapped."""

    address: str
    port: int

    def __str__(self) -> str:
        """Return `host:port`, ready for a message or a log."""
        return join_host_port(self.address, self.port)

    @property
    def is_loopback(self) -> bool:
        """Whether the connection comes from this machine."""
        return is_loopback_address(self.address)


def unmapped(address: str) -> str:
    """Return the IPv4 address inside a v4-mapped one; any other text unchanged."""
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return address


def peer_of(sockaddr: tuple[object, ...]) -> Peer:
    """Return the `Peer` of what accept or getpeername reports for a TCP socket."""
    return Peer(address=unmapped(str(sockaddr[0])), port=int(str(sockaddr[1])))


def limit_group(address: str) -> str:
    """Return the key under which connections of one peer are counted.

    An IPv4 address counts for itself; an IPv6 address by its /64, which is what
    one machine is usually given.
    """
    parsed = _parsed(unmapped(address))
    if isinstance(parsed, ipaddress.IPv6Address) and not parsed.is_loopback:
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return unmapped(address)


def join_host_port(host: str, port: int) -> str:
    """Return `host:port`; only a bare IPv6 literal gets brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def parse_host_port(text: str, *, default_port: int | None = None) -> tuple[str, int]:
    """Split `host:port`, `[v6]:port`, `host` or a bare IPv6 literal.

    Args:
        text: what a user typed; surrounding spaces are ignored.
        default_port: used where the text names none.

    Raises:
        ConfigError: no host, no port where none is the default, or a port
            outside 1 … 65535.
    """
    stripped = text.strip()
    host, port_text = _split(stripped)
    if not host:
        raise _address_error(text, "it names no host")
    if port_text is None:
        if default_port is None:
            raise _address_error(text, "it names no port")
        return host, default_port
    if not (port_text.isascii() and port_text.isdigit() and 1 <= int(port_text) <= LARGEST_PORT):
        raise _address_error(text, f"the port must be 1 to {LARGEST_PORT}")
    return host, int(port_text)


def _split(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return "", None
        return inside, rest[1:] if rest else None
    if text.count(":") > 1:
        return text, None
    host, colon, port_text = text.partition(":")
    return host, port_text if colon else None


def _address_error(text: str, reason: str) -> ConfigError:
    return ConfigError(
        "address",
        text,
        reason,
        source="command line",
        fix="write HOST:PORT, for example 192.168.1.5:1337 or [fd00::5]:1337.",
    )


def _parsed(address: str) -> _Address | None:
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
