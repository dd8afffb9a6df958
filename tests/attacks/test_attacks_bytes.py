"""Bytes made to hurt whoever reads them: oversize claims, msgpack bombs, a flood of mutations.

A reader may refuse with `BadFrameError` and with nothing else, and may hold no more than a
small multiple of what came.
"""

import struct
import tracemalloc
from collections.abc import Iterator

import msgpack
import pytest
from attack_tools import FUZZ_FRAMES, bounded_growth, chance
from net_pairs import session_keys
from wire_examples import EXAMPLES

from flodl_core.errors import BadFrameError
from flodl_core.messages import KINDS
from flodl_core.net.routing import route_untrusted
from flodl_core.units import MAX_PAYLOAD_BYTES, PIECE_BYTES
from flodl_core.wire.buckets import BucketOpener, piece_body_bytes
from flodl_core.wire.codec import decode_untrusted, encode
from flodl_core.wire.frame import (
    BUCKET_KIND,
    HEADER_BYTES,
    FrameOpener,
    FrameSealer,
    ReceiveCounter,
    parse_header_untrusted,
)
from flodl_core.wire.handshake import CLIENT_HELLO_BYTES, Channel, ServerHandshake

KEYS = session_keys()[1]
DEEP = 100_000

BOMBS = {
    "arrays in arrays": b"\x91" * DEEP + b"\xc0",
    "maps in maps": b"\x81\xa1a" * DEEP + b"\xc0",
    "an array of four billion": b"\xdd\xff\xff\xff\xff",
    "a map of four billion": b"\xdf\xff\xff\xff\xff",
    "a text of four gigabytes": b"\x91\xdb\xff\xff\xff\xff",
    "bytes of four gigabytes": b"\x91\xc6\xff\xff\xff\xff",
    "an extension of four gigabytes": b"\x91\xc9\xff\xff\xff\xff\x01",
    "a timestamp": b"\x91" + msgpack.packb(msgpack.Timestamp(0)),
    "one key a million times": b"\x91\xdf\x00\x0f\x42\x40" + b"\xa1a\xc0" * 1_000_000,
    "half a million empty texts": b"\xdd\x00\x07\xa1\x20" + b"\xa0" * 500_000,
    "text that is no UTF-8": b"\x91\xa4\xff\xfe\xfd\xfc",
    "nothing": b"",
    "a byte that begins nothing": b"\xc1",
    "an integer beyond 64 bits": b"\x91\xd9\x05" + b"9" * 5,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_no_message_explodes_on_a_bomb(bomb) -> None:
    for kind in (*KINDS, 0, 15, BUCKET_KIND - 1):
        tracemalloc.start()
        try:
            decode_untrusted(kind, bomb)
        except BadFrameError:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 64_000 + 8 * len(bomb), KINDS.get(kind)


@pytest.mark.parametrize("length", [PIECE_BYTES + 1, 2**24 + 1, 2**31, 2**32 - 1])
def test_a_frame_that_claims_too_much_is_refused_by_its_header(length) -> None:
    header = struct.pack("!4sBBHQI", b"FLO1", 1, 0, 63, 0, length)
    tracemalloc.start()
    with pytest.raises(BadFrameError, match="at most 1048576 travel in one piece"):
        FrameOpener(KEYS.receive_hmac).feed_untrusted(header)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_a_payload_of_ever_more_pieces_is_refused_at_its_ceiling() -> None:
    """Also from whom holds the keys: sixteen MiB is all that one message may have."""
    opener = FrameOpener(None)
    most = MAX_PAYLOAD_BYTES // PIECE_BYTES
    pieces = [
        struct.pack("!4sBBHQI", b"FLO1", 1, 1, 63, number, PIECE_BYTES) + bytes(PIECE_BYTES)
        for number in range(most + 1)
    ]
    for piece in pieces[:most]:
        assert opener.feed_untrusted(piece) == []
    with pytest.raises(BadFrameError, match="at most 16777216 are accepted"):
        opener.feed_untrusted(pieces[most][:HEADER_BYTES])


def mutations(count: int, seed: int) -> Iterator[tuple[int, bytes]]:
    """Payloads of every message, each hurt in one of the ways that parsers fear."""
    dice = chance(seed)
    whole = [encode(example) for example in EXAMPLES]
    for _ in range(count):
        kind, payload = dice.choice(whole)
        data = bytearray(payload)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(data) + 1)
            match dice.randrange(6):
                case 0:
                    data[at:at] = dice.randbytes(dice.randint(1, 8))
                case 1:
                    del data[at : at + dice.randint(1, 16)]
                case 2 if data:
                    data[at % len(data)] ^= 1 << dice.randrange(8)
                case 3 if data:
                    data[at % len(data)] = dice.choice(b"\xc1\xc6\xc9\xdb\xdd\xdf\x91\x81\xff\x00")
                case 4:
                    other = dice.choice(whole)[1]
                    data[at:] = other[dice.randrange(len(other) + 1) :]
                case _:
                    kind = dice.choice(whole)[0] if dice.random() < 0.5 else dice.randrange(65536)
        yield kind, bytes(data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_flood_of_mutated_messages_is_read_or_refused_and_leaves_nothing() -> None:
    read = refused = 0
    with bounded_growth():
        for kind, payload in mutations(FUZZ_FRAMES, seed=11):
            try:
                decode_untrusted(kind, payload)
                read += 1
            except BadFrameError:
                refused += 1
    assert read + refused == FUZZ_FRAMES
    assert refused > FUZZ_FRAMES / 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_flood_of_mutated_frames_opens_nothing_that_was_not_sealed() -> None:
    dice = chance(12)
    honest = {}
    with bounded_growth():
        for number, (kind, payload) in enumerate(mutations(FUZZ_FRAMES, seed=13)):
            sealer = FrameSealer(KEYS.receive_hmac)
            frame = bytearray(sealer.seal(kind % BUCKET_KIND, payload[:200]))
            is_honest = number % 10 == 0
            if not is_honest:
                frame[dice.randrange(len(frame))] ^= 1 << dice.randrange(8)
            opener = FrameOpener(KEYS.receive_hmac)
            try:
                opened = opener.feed_untrusted(frame)
            except BadFrameError:
                opened = []
            assert bool(opened) == is_honest
            honest[is_honest] = honest.get(is_honest, 0) + 1
    assert honest[True] == -(-FUZZ_FRAMES // 10)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_flood_of_bucket_pieces_places_no_value() -> None:
    placed: list[object] = []

    def place(frame: object) -> memoryview:
        placed.append(frame)
        return memoryview(bytearray(8))

    dice = chance(14)
    with bounded_growth():
        for _ in range(FUZZ_FRAMES):
            length = dice.choice((0, 1, 8, 64))
            header = struct.pack("!4sBBHQI", b"FLO1", 1, dice.randrange(2), BUCKET_KIND, 0, length)
            parsed = parse_header_untrusted(header)
            opener = BucketOpener(KEYS.receive_gcm, ReceiveCounter(), place=place)
            with pytest.raises(BadFrameError):
                opener.open_piece_untrusted(parsed, dice.randbytes(piece_body_bytes(parsed)))
    assert placed == []


@pytest.mark.slow
def test_a_flood_of_hellos_and_first_bytes_is_routed_or_refused() -> None:
    dice = chance(15)
    for _ in range(min(FUZZ_FRAMES, 20_000)):
        route_untrusted(dice.randbytes(dice.randint(0, 6)))
    for _ in range(min(FUZZ_FRAMES, 2_000) // 2):
        hello = bytearray(b"JOIN\x01\x01" + dice.randbytes(CLIENT_HELLO_BYTES - 6))
        for _ in range(dice.randint(0, 3)):
            hello[dice.randrange(len(hello))] = dice.choice((0, 255, dice.randrange(256)))
        server = ServerHandshake(
            Channel.JOIN, bytes(16), nonce=dice.randbytes(32), private_key=dice.randbytes(32)
        )
        try:
            reply, _ = server.reply_untrusted(bytes(hello))
        except BadFrameError:
            continue
        assert len(reply) == 98


def test_low_order_keys_share_nothing() -> None:
    """The points of small order would make the shared secret known to everybody."""
    for point in (bytes(32), b"\x01" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f"):
        server = ServerHandshake(Channel.JOIN, bytes(16), nonce=bytes(32), private_key=b"k" * 32)
        with pytest.raises(BadFrameError, match="low order"):
            server.reply_untrusted(b"JOIN\x01\x01" + bytes(32) + point)


def test_the_examples_cover_every_message() -> None:
    assert {type(example) for example in EXAMPLES} == set(KINDS.values())
    assert HEADER_BYTES == 20
