"""Sealed frames: messages of a run with --tls, which only the other end can read."""

import struct

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.errors import BadFrameError
from flodl_core.ids import Cycle, Rank, Round
from flodl_core.messages.data import BucketFrame
from flodl_core.units import PIECE_BYTES
from flodl_core.wire.buckets import MAX_PIECE_BODY_BYTES, BucketOpener, BucketSealer
from flodl_core.wire.frame import (
    BUCKET_KIND,
    HEADER_BYTES,
    Frame,
    FrameOpener,
    FrameSealer,
    ReceiveCounter,
    SendCounter,
    TagError,
    parse_header_untrusted,
)

GCM_KEY = bytes(range(16))
HMAC_KEY = bytes(range(32))
PAYLOADS = st.lists(
    st.tuples(st.integers(0, BUCKET_KIND - 1), st.binary(max_size=60)), min_size=1, max_size=5
)


def by_hand(counter: int, kind: int, payload: bytes, *, key: bytes = GCM_KEY) -> bytes:
    """A sealed frame from the words of the format, with nothing of ours."""
    header = b"FLO1" + struct.pack(">BBHQI", 1, 0, kind, counter, len(payload))
    nonce = bytes(4) + struct.pack(">Q", counter)
    return header + AESGCM(key).encrypt(nonce, payload, header)


def sealing(counter: SendCounter | None = None) -> FrameSealer:
    return FrameSealer(HMAC_KEY, counter, gcm_key=GCM_KEY)


def opening(counter: ReceiveCounter | None = None) -> FrameOpener:
    return FrameOpener(HMAC_KEY, counter, gcm_key=GCM_KEY)


@given(PAYLOADS)
@settings(max_examples=100, deadline=None)
def test_sealed_frames_are_those_of_the_written_format(payloads) -> None:
    sealer = sealing()
    for counter, (kind, payload) in enumerate(payloads):
        assert sealer.seal(kind, payload) == by_hand(counter, kind, payload)


@given(PAYLOADS, st.integers(1, 130))
@settings(max_examples=100, deadline=None)
def test_sealed_frames_come_back_whole_and_in_order_at_every_chunk_size(payloads, size) -> None:
    stream = b"".join(by_hand(number, *payload) for number, payload in enumerate(payloads))
    opener = opening()
    frames = []
    for start in range(0, len(stream), size):
        frames += opener.feed_untrusted(stream[start : start + size])
    assert frames == [Frame(*payload) for payload in payloads]
    assert opener.at_boundary


def test_every_flipped_bit_of_a_sealed_frame_is_refused() -> None:
    whole = by_hand(0, 63, b"what nobody else may read")
    for bit in range(8 * len(whole)):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << (bit % 8)
        opener = opening()
        try:
            assert opener.feed_untrusted(bytes(broken)) == []
        except BadFrameError:
            continue
        # A longer length is waited for; the end of the stream makes it an error.
        assert not opener.at_boundary
        assert HEADER_BYTES - 4 <= bit // 8 < HEADER_BYTES


def test_a_sealed_frame_does_not_show_its_payload() -> None:
    secret = b"loss 0.125 of rank 3, host red"
    assert secret not in sealing().seal(63, secret)
    assert secret in FrameSealer(HMAC_KEY).seal(63, secret)


@pytest.mark.parametrize("sealed_end", ["sender", "receiver"])
def test_an_end_that_seals_takes_nothing_from_one_that_tags(sealed_end) -> None:
    sealer = sealing() if sealed_end == "sender" else FrameSealer(HMAC_KEY)
    opener = opening() if sealed_end == "receiver" else FrameOpener(HMAC_KEY)
    stream = sealer.seal(63, b"0123456789" * 4) + sealer.seal(63, b"0123456789" * 4)
    with pytest.raises(TagError):
        opener.feed_untrusted(stream)


def test_a_sealed_frame_is_taken_once_and_in_its_turn() -> None:
    first, second = by_hand(0, 63, b"a"), by_hand(1, 63, b"b")
    for stream in (second, first + first, first + by_hand(1, 63, b"b", key=bytes(16))):
        with pytest.raises(BadFrameError):
            opening().feed_untrusted(stream)


def test_messages_and_buckets_share_numbers_so_that_no_nonce_occurs_twice() -> None:
    sent, received = SendCounter(), ReceiveCounter()
    frames, buckets = sealing(sent), BucketSealer(GCM_KEY, sent)
    place = bytearray(8)
    opener = opening(received)
    bucket_opener = BucketOpener(GCM_KEY, received, place=lambda _: memoryview(place))
    frame = BucketFrame(
        cycle=Cycle(1),
        round=Round.PARAMS,
        index=0,
        count=1,
        mass=1.0,
        ranks=(Rank(0),),
        nbytes=8,
        dtype="f32",
    )
    numbers = []
    for turn in range(3):
        for piece in buckets.iter_pieces(frame, memoryview(b"12345678")):
            header = parse_header_untrusted(piece[0])
            numbers.append(header.counter)
            bucket_opener.open_piece_untrusted(header, bytes(piece[0][HEADER_BYTES:]))
        message = frames.seal(48, b"between buckets")
        numbers.append(parse_header_untrusted(message).counter)
        assert opener.feed_untrusted(message) == [Frame(48, b"between buckets")], turn
    assert numbers == list(range(9))
    assert place == b"12345678"


def test_the_receive_buffer_of_pieces_fits_sealed_messages_too() -> None:
    pieces = list(sealing().pieces(34, bytes(2 * PIECE_BYTES)))
    assert max(len(piece) - HEADER_BYTES for piece in pieces) <= MAX_PIECE_BODY_BYTES
