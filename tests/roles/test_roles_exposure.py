"""The warning of peers outside private networks."""

from hypothesis import given
from hypothesis import strategies as st

from flodl_core.roles.exposure import MOST_ADDRESSES, ExposureWatch

PUBLIC = ("8.8.8.8", "2001:db8::7", "::ffff:1.1.1.1")
PRIVATE = ("127.0.0.1", "10.0.0.7", "100.64.3.4", "192.168.1.2", "fe80::1%eth0", "fd00::5", "::1")


def watching():
    told = []
    return ExposureWatch(lambda address, text: told.append((address, text))), told


def test_each_public_peer_is_warned_of_once():
    watch, told = watching()
    for address in (*PUBLIC, *PRIVATE, *PUBLIC):
        watch.served(address)
    assert [address for address, _ in told] == list(PUBLIC)
    assert "8.8.8.8 lies outside private networks and this run has no --tls" in told[0][1]


@given(st.ip_addresses())
def test_an_address_is_warned_of_exactly_if_it_is_global(address):
    watch, told = watching()
    watch.served(str(address))
    if address.is_global and not address.is_loopback and not address.is_link_local:
        assert told
    if address.is_loopback or address.is_link_local:
        assert not told


def test_a_flood_from_everywhere_says_nothing_new():
    watch, told = watching()
    for number in range(2 * MOST_ADDRESSES):
        watch.served(f"8.{number // 256}.{number % 256}.1")
    assert len(told) == MOST_ADDRESSES
