"""Addresses as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.config.addresses import is_loopback_address, is_private_or_local
from flodl_core.errors import ConfigError
from flodl_core.net.addresses import (
    Peer,
    join_host_port,
    limit_group,
    parse_host_port,
    peer_of,
    unmapped,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("red:1337", ("red", 1337)),
        (" 192.168.1.5:80 ", ("192.168.1.5", 80)),
        ("[fd00::5]:1337", ("fd00::5", 1337)),
        ("[fd00::5]", ("fd00::5", 9)),
        ("fd00::5", ("fd00::5", 9)),
        ("::1", ("::1", 9)),
        ("red", ("red", 9)),
    ],
)
def test_an_address_is_split_into_host_and_port(text, expected):
    assert parse_host_port(text, default_port=9) == expected


@pytest.mark.parametrize(
    "text", ["", ":1337", "red:", "red:0", "red:70000", "red:-1", "red:x", "[::1", "[::1]80", "a:²"]
)
def test_a_bad_address_is_one_clear_error(text):
    with pytest.raises(ConfigError, match="Fix: write HOST:PORT"):
        parse_host_port(text, default_port=9)


def test_an_address_without_a_port_needs_a_default():
    with pytest.raises(ConfigError, match="it names no port"):
        parse_host_port("red")


def test_only_a_bare_ipv6_literal_gets_brackets():
    assert join_host_port("::1", 5) == "[::1]:5"
    assert join_host_port("[::1]", 5) == "[::1]:5"
    assert join_host_port("red", 5) == "red:5"
    assert join_host_port("10.0.0.1", 5) == "10.0.0.1:5"


@given(st.ip_addresses(), st.integers(1, 65535))
def test_joining_and_parsing_are_inverse(address, port):
    assert parse_host_port(join_host_port(str(address), port)) == (str(address), port)


@given(st.text(max_size=30))
def test_parsing_any_text_raises_nothing_but_a_configuration_error(text):
    try:
        host, port = parse_host_port(text, default_port=1)
    except ConfigError:
        return
    assert host
    assert 1 <= port <= 65535


def test_a_mapped_address_is_judged_by_the_inner_one():
    assert unmapped("::ffff:10.0.0.7") == "10.0.0.7"
    assert is_loopback_address("::ffff:127.0.0.1")
    assert not is_loopback_address("::ffff:8.8.8.8")
    assert not is_private_or_local("::ffff:8.8.8.8")
    assert is_private_or_local("::ffff:192.168.3.4")
    assert limit_group("::ffff:10.0.0.7") == "10.0.0.7"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.9.9.9", True),
        ("10.1.2.3", True),
        ("172.16.0.1", True),
        ("172.32.0.1", False),
        ("192.168.0.1", True),
        ("169.254.1.1", True),
        ("100.64.0.1", True),
        ("100.128.0.1", False),
        ("8.8.8.8", False),
        ("::1", True),
        ("fe80::1%eth0", True),
        ("fd00::1", True),
        ("2001:db8::1", False),
        ("red", False),
    ],
)
def test_private_and_local_peers_need_no_warning(address, expected):
    assert is_private_or_local(address) is expected


def test_ipv6_peers_are_counted_by_their_64_bit_network():
    assert limit_group("2001:db8::1") == limit_group("2001:db8::ffff")
    assert limit_group("2001:db8::1") != limit_group("2001:db8:0:1::1")
    assert limit_group("10.0.0.1") != limit_group("10.0.0.2")
    assert limit_group("red") == "red"


def test_a_peer_prints_as_an_address():
    peer = peer_of(("::ffff:127.0.0.1", 5, 0, 0))
    assert peer == Peer(address="127.0.0.1", port=5)
    assert str(peer) == "127.0.0.1:5"
    assert peer.is_loopback
