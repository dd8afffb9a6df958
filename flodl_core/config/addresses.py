"""What an address says about who can reach it.

What it is: rules over address literals. A v4 address mapped into v6 is judged
by the inner address.
What it is not: name resolution; `localhost` is the one name that is known.
Who drives it: the schema for `bind`, the port for its limits, the launcher and the agent for
their warnings.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias

from flodl_core.errors import ConfigError

Address: TypeAlias = IPv4Address | IPv6Address

_LOCAL_NETWORKS: Final = tuple(
    ip_network(text)
    for text in (
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "100.64.0.0/10",
        "::1/128",
        "fe80::/10",
        "fc00::/7",
    )
)


def is_loopback_address(text: str) -> bool:
    """Return whether only this machine can reach the address; False if it is no literal."""
    address = _parse(text)
    return address is not None and address.is_loopback


def is_private_or_local(text: str) -> bool:
    """Return whether a peer there needs no warning: loopback, private, link-local or shared.

    That is RFC 1918, 100.64.0.0/10, fe80::/10, fc00::/7 and their like; False if it is no literal.
    """
    address = _parse(text)
    return address is not None and any(address in network for network in _LOCAL_NETWORKS)


def is_wildcard(text: str) -> bool:
    """Return whether listening there means every interface of this machine."""
    address = _parse(text)
    return address is not None and address.is_unspecified


def parse_bind(text: str, *, source: str) -> Address:
    """Return the address to listen on.

    Raises:
        ConfigError: it is neither an address literal nor `localhost`.
    """
    address = _parse(text)
    if address is None:
        raise ConfigError(
            "bind",
            text,
            "is not an address literal",
            source=source,
            fix="give an address such as 127.0.0.1, 0.0.0.0 or ::",
        )
    return address


def _parse(text: str) -> Address | None:
    """Return the address, a mapped v4 one as its inner address."""
    bare = text.strip().removeprefix("[").removesuffix("]").partition("%")[0]
    if bare.lower() == "localhost":
        return IPv4Address("127.0.0.1")
    try:
        address = ip_address(bare)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
