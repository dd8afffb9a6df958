"""Who may act on a run over HTTP."""

import os
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from net_pairs import tcp_pair

from flodl_core.net.http_trust import (
    Credentials,
    TrustPolicy,
    distrust_of_acting,
    distrust_of_reading,
    peer_is_same_user,
    trick_of_a_page,
)

POLICY = TrustPolicy(operator_token="0123abcd")
STRICT = TrustPolicy(operator_token="0123abcd", require_token=True)


def shows(*, loopback=True, host="localhost:1337", origin=None, bearer=None):
    return Credentials(peer_is_loopback=loopback, host=host, origin=origin, bearer=bearer)


def distrust(credentials, policy=POLICY, *, same_user=True):
    return distrust_of_acting(credentials, policy, is_same_user=lambda: same_user)


def test_our_own_user_on_this_machine_is_trusted_without_a_token():
    assert distrust(shows()) is None


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:1337", "127.0.0.1:1", "127.0.0.1", "[::1]:80", "[::1]", "LOCALHOST"],
)
def test_the_names_of_this_machine_are_three(host):
    assert distrust(shows(host=host)) is None


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "evil.example:1337", "localhost.evil:1", "127.0.0.1.evil", "::1",
     "localhost:", "localhost:x", "[::1]x", "0.0.0.0", "127.0.0.2"],
)  # fmt: skip
def test_another_host_name_needs_the_token(host):
    assert "Host must be" in distrust(shows(host=host))
    assert distrust(shows(host=host, bearer="0123abcd")) is None


def test_another_user_of_this_machine_needs_the_token():
    assert "another user" in distrust(shows(), same_user=False)
    assert distrust(shows(bearer="0123abcd"), same_user=False) is None


def test_another_machine_needs_the_token():
    assert "token is needed" in distrust(shows(loopback=False))
    assert distrust(shows(loopback=False, bearer="0123abcd")) is None


def test_a_web_page_is_refused_even_with_the_token():
    assert "web page" in distrust(shows(origin="http://localhost:1337", bearer="0123abcd"))
    assert "web page" in distrust(shows(origin=""))


OWN = TrustPolicy(operator_token="0123abcd", own_names=frozenset({"gpu-box"}))


@pytest.mark.parametrize(
    "host",
    [None, "localhost:1337", "127.0.0.1", "[::1]:80", "10.0.0.5:1337", "127.0.1.1", "GPU-box:9",
     "[fe80::1]:7"],
)  # fmt: skip
def test_what_this_machine_may_be_called_by_its_own_readers(host):
    assert trick_of_a_page(shows(host=host), OWN) is None


@pytest.mark.parametrize(
    "host", ["evil.example:1337", "evil.example", "gpu-box.evil", "localhost.evil:1", "", "a:b"]
)
def test_a_name_that_somebody_else_may_own_reads_nothing_from_loopback_without_the_token(host):
    assert "Host must be localhost" in trick_of_a_page(shows(host=host), OWN)
    assert trick_of_a_page(shows(host=host, bearer="0123abcd"), OWN) is None
    assert trick_of_a_page(shows(host=host, loopback=False), OWN) is None


def test_a_web_page_reads_nothing_with_the_token_or_without():
    assert "web page" in trick_of_a_page(shows(origin="https://a"), OWN)
    assert "web page" in trick_of_a_page(shows(origin="", loopback=False, bearer="0123abcd"), OWN)


@given(st.text(max_size=20).filter(lambda text: text != "0123abcd"), st.booleans())
def test_a_wrong_token_is_refused_even_from_our_own_user(bearer, strict):
    policy = STRICT if strict else POLICY
    assert "not the operator token" in distrust(shows(bearer=bearer), policy)


def test_where_the_token_is_required_nothing_else_is_enough():
    assert "token is needed" in distrust(shows(), STRICT)
    assert distrust(shows(bearer="0123abcd"), STRICT) is None


def test_reading_needs_the_token_only_where_it_is_required():
    assert distrust_of_reading(shows(loopback=False, host="x"), POLICY) is None
    assert distrust_of_reading(shows(), STRICT) is not None
    assert distrust_of_reading(shows(bearer="nope"), STRICT) is not None
    assert distrust_of_reading(shows(bearer="0123abcd"), STRICT) is None


@pytest.mark.parametrize("bind", ["127.0.0.1", "::1", "mapped"])
def test_our_own_socket_is_found_in_the_kernel_s_tables(bind):
    family = socket.AF_INET if bind == "127.0.0.1" else socket.AF_INET6
    with socket.socket(family) as listener:
        if bind == "mapped":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::" if bind == "mapped" else bind, 0))
        listener.listen()
        at = ("127.0.0.1" if bind == "mapped" else bind, listener.getsockname()[1])
        with socket.create_connection(at):
            far, _ = listener.accept()
            with far:
                assert peer_is_same_user(far)


def test_a_peer_that_half_closed_is_still_ours():
    near, far = tcp_pair()
    near.shutdown(socket.SHUT_WR)
    assert peer_is_same_user(far)
    near.close()
    assert not peer_is_same_user(far)
    far.close()
    assert not peer_is_same_user(far)


@pytest.mark.processes
@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_another_user_s_socket_is_not_ours():
    code = (
        "import encodings.idna, os, socket, sys; os.setuid(65534); "
        "socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-I", "-c", code, str(listener.getsockname()[1])]
        listener.settimeout(20)
        with subprocess.Popen(command) as process:
            far, _ = listener.accept()
            with far:
                assert not peer_is_same_user(far)
            assert process.wait(20) == 0
