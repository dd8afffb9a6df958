"""The key exchange: what both ends agree on, and what each refuses."""

import hashlib
import hmac

import pytest
from handshake_by_hand import exchange, expand, extract, x25519
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.errors import (
    BadFrameError,
    LocalProtocolError,
    RefusedError,
    TokenRequiredError,
    WrongTokenError,
)
from flodl_core.wire.frame import FrameOpener, FrameSealer, TagError
from flodl_core.wire.handshake import (
    CLIENT_HELLO_BYTES,
    SERVER_HELLO_BYTES,
    Channel,
    ClientHandshake,
    ServerHandshake,
    operator_token,
)
from flodl_core.wire.salt import SEALED_SALT_BYTES, SaltOpener, SaltSealer

TOKEN = bytes(range(16))
CLIENT = {"nonce": b"\x01" * 32, "private_key": b"\x02" * 32}
SERVER = {"nonce": b"\x03" * 32, "private_key": b"\x04" * 32}
SECRETS = st.binary(min_size=32, max_size=32)
PSKS = st.binary(min_size=16, max_size=16)


def client_of(channel=Channel.JOIN, psk=TOKEN, **drawn):
    return ClientHandshake(channel, psk, **{**CLIENT, **drawn})


def server_of(channel=Channel.JOIN, psk=TOKEN, *, open_admission=False, **drawn):
    return ServerHandshake(channel, psk, open_admission=open_admission, **{**SERVER, **drawn})


def test_the_comparison_itself_agrees_with_the_rfcs():
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    result = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert x25519(scalar, point).hex() == result
    prk = extract(bytes.fromhex("000102030405060708090a0b0c"), b"\x0b" * 22)
    okm = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert expand(prk, bytes.fromhex("f0f1f2f3f4f5f6f7f8f9"), 42).hex() == okm


@given(st.sampled_from(Channel), PSKS, SECRETS, SECRETS, SECRETS, SECRETS)
@settings(max_examples=25, deadline=None)
def test_both_ends_derive_the_keys_that_the_rfcs_give(channel, psk, n1, k1, n2, k2):
    expected = exchange(
        channel.value,
        1,
        psk,
        client_nonce=n1,
        client_private=k1,
        server_nonce=n2,
        server_private=k2,
    )
    client = client_of(channel, psk, nonce=n1, private_key=k1)
    server = server_of(channel, psk, nonce=n2, private_key=k2)
    assert client.hello() == expected["client_hello"]
    reply, theirs = server.reply_untrusted(client.hello())
    assert reply == expected["server_hello"]
    ours = client.finish_untrusted(reply)
    assert ours.send_hmac == theirs.receive_hmac == expected["up_hmac"]
    assert ours.receive_hmac == theirs.send_hmac == expected["down_hmac"]
    assert ours.send_gcm == theirs.receive_gcm == expected["up_gcm"]
    assert ours.receive_gcm == theirs.send_gcm == expected["down_gcm"]
    keys = [ours.send_hmac, ours.receive_hmac, ours.send_gcm, ours.receive_gcm]
    assert len({key[:16] for key in keys}) == 4


def test_an_open_join_uses_sixteen_zero_bytes_where_it_is_admitted():
    client = client_of(psk=None)
    reply, theirs = server_of(open_admission=True).reply_untrusted(client.hello())
    ours = client.finish_untrusted(reply)
    expected = exchange(
        b"JOIN",
        0,
        bytes(16),
        client_nonce=CLIENT["nonce"],
        client_private=CLIENT["private_key"],
        server_nonce=SERVER["nonce"],
        server_private=SERVER["private_key"],
    )
    assert reply == expected["server_hello"]
    assert ours.send_hmac == theirs.receive_hmac == expected["up_hmac"]


def test_a_client_with_the_token_proves_it_even_where_admission_is_open():
    client = client_of()
    reply, keys = server_of(open_admission=True).reply_untrusted(client.hello())
    assert client.finish_untrusted(reply).send_hmac == keys.receive_hmac
    wrong = client_of(psk=bytes(16))
    reply, _ = server_of(open_admission=True).reply_untrusted(wrong.hello())
    with pytest.raises(WrongTokenError):
        wrong.finish_untrusted(reply)


def test_an_open_join_is_told_that_the_token_is_required():
    client = client_of(psk=None)
    reply, keys = server_of().reply_untrusted(client.hello())
    assert keys is None
    assert len(reply) == SERVER_HELLO_BYTES
    with pytest.raises(TokenRequiredError, match="--token"):
        client.finish_untrusted(reply)


@given(PSKS, PSKS)
@settings(max_examples=25, deadline=None)
def test_a_joiner_with_another_token_knows_it_and_the_port_refuses_its_frames(ours, theirs):
    client = client_of(psk=ours)
    reply, keys = server_of(psk=theirs).reply_untrusted(client.hello())
    if ours == theirs:
        client.finish_untrusted(reply)
        return
    with pytest.raises(WrongTokenError, match="another join token"):
        client.finish_untrusted(reply)
    with pytest.raises(TagError):
        FrameOpener(keys.receive_hmac).feed_untrusted(FrameSealer(ours * 2).seal(16, b"\x91\xa0"))


def test_a_relay_of_another_run_is_told_so():
    client = client_of(Channel.MUX, bytes(16))
    reply, _ = server_of(Channel.MUX).reply_untrusted(client.hello())
    with pytest.raises(WrongTokenError, match="session salt"):
        client.finish_untrusted(reply)


def test_mux_is_never_open():
    with pytest.raises(LocalProtocolError, match="salt"):
        client_of(Channel.MUX, None)
    hello = bytearray(client_of(Channel.MUX).hello())
    hello[5] = 0
    reply, keys = server_of(Channel.MUX, open_admission=True).reply_untrusted(bytes(hello))
    assert keys is None
    with pytest.raises(TokenRequiredError):
        client_of(Channel.MUX).finish_untrusted(reply)


@given(st.integers(0, 8 * CLIENT_HELLO_BYTES - 1))
@settings(max_examples=100, deadline=None)
def test_a_hello_changed_on_its_way_never_gives_a_session(bit):
    client, server = client_of(), server_of(open_admission=True)
    hello = bytearray(client.hello())
    hello[bit // 8] ^= 1 << (bit % 8)
    try:
        reply, _ = server.reply_untrusted(bytes(hello))
    except BadFrameError:
        return
    with pytest.raises((RefusedError, BadFrameError)):
        client.finish_untrusted(reply)


@given(st.integers(0, 8 * SERVER_HELLO_BYTES - 1), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_reply_changed_on_its_way_never_gives_a_session(bit, is_open):
    client = client_of(psk=None if is_open else TOKEN)
    reply, _ = server_of(open_admission=True).reply_untrusted(client.hello())
    changed = bytearray(reply)
    changed[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises((RefusedError, BadFrameError)):
        client.finish_untrusted(bytes(changed))


def test_a_downgrade_from_token_to_open_by_somebody_in_between_fails():
    client = client_of()
    hello = bytearray(client.hello())
    hello[5] = 0
    reply, _ = server_of(open_admission=True).reply_untrusted(bytes(hello))
    with pytest.raises(WrongTokenError):
        client.finish_untrusted(reply)


def test_a_reply_of_another_handshake_is_refused():
    reply, _ = server_of().reply_untrusted(client_of(nonce=b"\x09" * 32).hello())
    with pytest.raises(WrongTokenError):
        client_of().finish_untrusted(reply)


@given(st.binary(max_size=2 * SERVER_HELLO_BYTES))
@settings(max_examples=150, deadline=None)
def test_arbitrary_replies_raise_only_what_is_promised(reply):
    for sized in (reply, reply.ljust(SERVER_HELLO_BYTES, b"\x01")[:SERVER_HELLO_BYTES]):
        with pytest.raises((RefusedError, BadFrameError)):
            client_of().finish_untrusted(sized)


@given(st.binary(max_size=2 * CLIENT_HELLO_BYTES))
@settings(max_examples=150, deadline=None)
def test_arbitrary_hellos_raise_nothing_but_bad_frame(hello):
    server = server_of(open_admission=True)
    with pytest.raises(BadFrameError):
        server.reply_untrusted(hello)
    body = hello.ljust(CLIENT_HELLO_BYTES - 4, b"\x07")[: CLIENT_HELLO_BYTES - 4]
    for prefix in (b"JOIN", b"JOIN\x01\x00", b"JOIN\x01\x01"):
        try:
            reply, _ = server.reply_untrusted((prefix + body)[:CLIENT_HELLO_BYTES])
        except BadFrameError:
            continue
        assert len(reply) == SERVER_HELLO_BYTES


def test_another_version_is_told_by_both_ends():
    hello = bytearray(client_of().hello())
    hello[4] = 2
    reply, keys = server_of().reply_untrusted(bytes(hello))
    assert keys is None
    assert reply == bytes([1, 2]) + bytes(SERVER_HELLO_BYTES - 2)
    newer = bytes([7, 2]) + bytes(SERVER_HELLO_BYTES - 2)
    with pytest.raises(RefusedError, match="speaks wire version 7, this is 1"):
        client_of().finish_untrusted(newer)


def test_a_web_server_that_answers_is_not_taken_for_flodl():
    answer = b"HTTP/1.1 400 Bad Request\r\n".ljust(SERVER_HELLO_BYTES, b" ")
    with pytest.raises(BadFrameError, match="not one of a flodl port"):
        client_of().finish_untrusted(answer)


@pytest.mark.parametrize("point", [0, 1])
def test_a_key_of_low_order_is_refused_by_both_ends(point):
    low = point.to_bytes(32, "little")
    client = client_of()
    with pytest.raises(BadFrameError, match="low order"):
        server_of().reply_untrusted(client.hello()[:38] + low)
    reply, _ = server_of().reply_untrusted(client.hello())
    with pytest.raises(BadFrameError, match="low order"):
        client.finish_untrusted(reply[:34] + low + reply[66:])


@pytest.mark.parametrize("drawn", [{"nonce": b"short"}, {"private_key": b"short"}])
def test_short_randomness_is_our_error(drawn):
    with pytest.raises(LocalProtocolError, match="32 fresh random bytes"):
        client_of(**drawn)
    with pytest.raises(LocalProtocolError, match="32 fresh random bytes"):
        server_of(**drawn)


def test_a_hello_for_the_other_channel_is_refused():
    with pytest.raises(BadFrameError, match="no hello of MUX"):
        server_of(Channel.MUX).reply_untrusted(client_of().hello())


def test_keys_are_never_printed():
    client = client_of()
    reply, keys = server_of().reply_untrusted(client.hello())
    for printed in (repr(keys), repr(client.finish_untrusted(reply))):
        assert printed == "SessionKeys()"


def test_the_operator_token_is_hkdf_of_the_join_token_and_does_not_show_it():
    prk = hmac.new(bytes(32), TOKEN, hashlib.sha256).digest()
    expected = hmac.new(prk, b"operator\x01", hashlib.sha256).hexdigest()
    assert operator_token(TOKEN) == expected
    assert TOKEN.hex() not in expected


def test_a_salt_is_opened_once_in_order_and_only_with_its_key():
    sealer, opener = SaltSealer(b"k" * 16), SaltOpener(b"k" * 16)
    first, second = sealer.seal(TOKEN), sealer.seal(TOKEN)
    assert first != second
    assert len(first) == SEALED_SALT_BYTES
    assert TOKEN not in first
    with pytest.raises(TagError, match="seal of the session salt"):
        SaltOpener(b"K" * 16).open_untrusted(first)
    assert opener.open_untrusted(first) == TOKEN
    with pytest.raises(TagError):
        opener.open_untrusted(first)
    assert opener.open_untrusted(second) == TOKEN


@given(st.binary(max_size=64))
@settings(max_examples=100, deadline=None)
def test_arbitrary_sealed_salts_raise_nothing_but_bad_frame(sealed):
    with pytest.raises(BadFrameError):
        SaltOpener(b"k" * 16).open_untrusted(sealed)
