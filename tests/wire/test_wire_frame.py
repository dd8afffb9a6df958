"""Frames: whole or refused, in order or refused, at every chunk size."""

import hashlib
import hmac
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.errors import BadFrameError, LocalProtocolError
from flodl_core.messages import KINDS
from flodl_core.units import MAX_PAYLOAD_BYTES, PIECE_BYTES
from flodl_core.wire.frame import (
    BUCKET_KIND,
    HEADER_BYTES,
    MORE,
    TAG_BYTES,
    Frame,
    FrameOpener,
    FrameSealer,
    Header,
    ReceiveCounter,
    SendCounter,
    TagError,
    parse_header_untrusted,
)

KEY = bytes(range(32))
OTHER_KEY = bytes(32)
KEYS = st.sampled_from([KEY, None])
PAYLOADS = st.lists(
    st.tuples(st.integers(0, BUCKET_KIND - 1), st.binary(max_size=60)), min_size=1, max_size=5
)


def by_hand(key, counter, kind, payload, *, flags=0, magic=b"FLO1", version=1):
    """A frame from the words of the format, with nothing of ours."""
    header = magic + struct.pack(">BBHQI", version, flags, kind, counter, len(payload))
    tag = b"" if key is None else hmac.new(key, header + payload, hashlib.sha256).digest()
    return header + payload + tag


def feed_in_chunks(opener, data, size):
    """Feed until an error; return the frames and the error."""
    frames = []
    for start in range(0, len(data), size):
        try:
            frames += opener.feed_untrusted(data[start : start + size])
        except BadFrameError as error:
            return frames, error
    return frames, None


@given(KEYS, PAYLOADS)
@settings(max_examples=100, deadline=None)
def test_sealed_frames_are_those_of_the_written_format(key, payloads):
    sealer = FrameSealer(key)
    for counter, (kind, payload) in enumerate(payloads):
        assert sealer.seal(kind, payload) == by_hand(key, counter, kind, payload)


@given(KEYS, PAYLOADS, st.integers(1, 130))
@settings(max_examples=150, deadline=None)
def test_frames_come_back_whole_and_in_order_at_every_chunk_size(key, payloads, size):
    stream = b"".join(by_hand(key, i, *payload) for i, payload in enumerate(payloads))
    opener = FrameOpener(key)
    assert opener.at_boundary
    frames, error = feed_in_chunks(opener, stream, size)
    assert error is None
    assert frames == [Frame(*payload) for payload in payloads]
    assert opener.at_boundary


@given(KEYS, st.binary(max_size=300), st.integers(1, 70))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_raise_nothing_but_bad_frame(key, data, size):
    frames, error = feed_in_chunks(FrameOpener(key), data, size)
    assert frames == []
    assert error is not None or len(data) < HEADER_BYTES


@given(
    KEYS,
    st.integers(0, 3),
    st.integers(0, 2**16 - 1),
    st.integers(0, 3),
    st.integers(0, 200),
    st.binary(max_size=200),
    st.integers(1, 70),
)
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_behind_our_magic_raise_nothing_but_bad_frame(
    key, flags, kind, counter, length, rest, size
):
    data = b"FLO1" + struct.pack(">BBHQI", 1, flags, kind, counter, length) + rest
    frames, error = feed_in_chunks(FrameOpener(key), data, size)
    if error is None and key is None:
        assert all(len(frame.payload) <= 200 for frame in frames)
    elif error is None:
        assert frames == []


@pytest.mark.slow
@given(PAYLOADS, st.data(), st.integers(1, 130))
@settings(max_examples=200, deadline=None)
def test_one_flipped_bit_stops_the_stream_at_its_frame(payloads, data, size):
    frames = [by_hand(KEY, i, *payload) for i, payload in enumerate(payloads)]
    hit = data.draw(st.integers(0, len(frames) - 1))
    bit = data.draw(st.integers(0, 8 * len(frames[hit]) - 1))
    broken = bytearray(frames[hit])
    broken[bit // 8] ^= 1 << (bit % 8)
    frames[hit] = bytes(broken)
    opener = FrameOpener(KEY)
    got, error = feed_in_chunks(opener, b"".join(frames), size)
    assert got == [Frame(*payload) for payload in payloads[: len(got)]]
    assert len(got) <= hit
    # A flip in the length may leave it waiting for more, which an end makes an error.
    assert error is not None or not opener.at_boundary
    assert not opener.at_boundary


@given(KEYS, PAYLOADS, st.data())
@settings(max_examples=100, deadline=None)
def test_an_end_inside_a_frame_is_no_boundary(key, payloads, data):
    frames = [by_hand(key, i, *payload) for i, payload in enumerate(payloads)]
    stream = b"".join(frames)
    cut = data.draw(st.integers(0, len(stream)))
    opener = FrameOpener(key)
    opener.feed_untrusted(stream[:cut])
    ends = {sum(map(len, frames[:i])) for i in range(len(frames) + 1)}
    assert opener.at_boundary == (cut in ends)


@given(
    KEYS,
    st.permutations(range(4)),
    st.sampled_from(["reorder", "replay", "drop"]),
)
@settings(max_examples=100, deadline=None)
def test_only_exactly_the_next_frame_is_accepted(key, order, attack):
    frames = [by_hand(key, i, 48, bytes([i])) for i in range(4)]
    sequence = {
        "reorder": list(order),
        "replay": [0, 1, order[0] % 2, 2],
        "drop": [i for i in range(4) if i != order[0]],
    }[attack]
    opener = FrameOpener(key)
    good = 0
    while good < len(sequence) and sequence[good] == good:
        good += 1
    got, error = feed_in_chunks(opener, b"".join(frames[i] for i in sequence), 10**6)
    if good == len(sequence):
        assert error is None
        return
    assert error is not None
    assert str(good) in error.happened
    opener = FrameOpener(key)
    got, _ = feed_in_chunks(opener, b"".join(frames[i] for i in sequence), 1)
    assert got == [Frame(48, bytes([i])) for i in range(good)]


def test_a_frame_of_another_connection_or_direction_is_refused():
    opener = FrameOpener(KEY)
    opener.feed_untrusted(by_hand(KEY, 0, 48, b"mine"))
    with pytest.raises(TagError, match="tag of frame 1"):
        opener.feed_untrusted(by_hand(OTHER_KEY, 1, 48, b"spliced"))


def test_an_untagged_frame_is_refused_where_tags_are_due():
    stream = b"".join(by_hand(None, i, 48, b"x" * 40) for i in range(3))
    with pytest.raises(TagError):
        FrameOpener(KEY).feed_untrusted(stream)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (by_hand(KEY, 0, 48, b"", magic=b"GET "), "b'GET ' came"),
        (by_hand(KEY, 0, 48, b"", version=2), "version 2 came, not 1"),
        (by_hand(KEY, 0, 48, b"", flags=2), "unknown flags 0x02"),
        (by_hand(KEY, 1, 48, b""), "frame 1 came, 0 was next"),
        (by_hand(KEY, 0, BUCKET_KIND, b""), "bucket"),
        (by_hand(KEY, 0, 48, b"x", flags=MORE), "only full ones may"),
        (by_hand(KEY, 0, 48, b"x")[:-1] + b"?", "tag of frame 0"),
    ],
)
def test_each_flaw_has_its_own_words_and_parks_the_opener_in_error(frame, why):
    opener = FrameOpener(KEY)
    with pytest.raises(BadFrameError, match=why):
        opener.feed_untrusted(frame)
    assert not opener.at_boundary
    with pytest.raises(BadFrameError, match="failed before"):
        opener.feed_untrusted(by_hand(KEY, 0, 48, b""))


def test_a_flaw_in_the_header_is_seen_before_the_body_comes():
    huge = b"FLO1" + struct.pack(">BBHQI", 1, 0, 48, 0, PIECE_BYTES + 1)
    with pytest.raises(BadFrameError, match=f"claims {PIECE_BYTES + 1} bytes"):
        FrameOpener(KEY).feed_untrusted(huge)
    small = b"FLO1" + struct.pack(">BBHQI", 1, 0, 48, 0, 1001)
    with pytest.raises(BadFrameError, match="at most 1000 are accepted here"):
        FrameOpener(KEY, max_payload=1000).feed_untrusted(small)


def test_memory_grows_with_bytes_that_came_and_not_with_bytes_that_were_claimed():
    openers = [FrameOpener(KEY) for _ in range(50)]
    header = b"FLO1" + struct.pack(">BBHQI", 1, 0, 48, 0, PIECE_BYTES)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for opener in openers:
            opener.feed_untrusted(header + b"some")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50 * 1000


@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize("extra", [0, 1])
def test_a_payload_above_a_piece_travels_as_consecutive_frames(key, extra):
    payload = bytes(range(256)) * (2 * PIECE_BYTES // 256) + b"!" * extra
    pieces = list(FrameSealer(key).pieces(86, payload))
    parts = [payload[i : i + PIECE_BYTES] for i in range(0, len(payload), PIECE_BYTES)]
    flags = [MORE] * (len(parts) - 1) + [0]
    assert pieces == [
        by_hand(key, i, 86, part, flags=flag)
        for i, (part, flag) in enumerate(zip(parts, flags, strict=True))
    ]
    opener = FrameOpener(key)
    for piece in pieces[:-1]:
        assert opener.feed_untrusted(piece) == []
        assert not opener.at_boundary
    assert opener.feed_untrusted(pieces[-1]) == [Frame(86, payload)]
    assert opener.at_boundary


def test_another_message_inside_an_unfinished_payload_is_refused():
    opener = FrameOpener(KEY)
    opener.feed_untrusted(by_hand(KEY, 0, 86, bytes(PIECE_BYTES), flags=MORE))
    with pytest.raises(BadFrameError, match="kind 48 came inside one of kind 86"):
        opener.feed_untrusted(by_hand(KEY, 1, 48, b""))


def test_pieces_together_are_bounded_as_the_payload_is():
    opener = FrameOpener(None, max_payload=2 * PIECE_BYTES)
    opener.feed_untrusted(by_hand(None, 0, 86, bytes(PIECE_BYTES), flags=MORE))
    opener.feed_untrusted(by_hand(None, 1, 86, bytes(PIECE_BYTES), flags=MORE))
    with pytest.raises(BadFrameError, match="at most"):
        opener.feed_untrusted(by_hand(None, 2, 86, b"x"))


def test_the_largest_payload_travels_and_a_larger_one_is_our_error():
    sealer, opener = FrameSealer(None), FrameOpener(None)
    payload = bytes(MAX_PAYLOAD_BYTES)
    assert opener.feed_untrusted(sealer.seal(86, payload)) == [Frame(86, payload)]
    with pytest.raises(LocalProtocolError, match="above the"):
        sealer.seal(86, payload + b"x")


@pytest.mark.parametrize("kind", [-1, BUCKET_KIND, 2**16])
def test_only_kinds_of_messages_can_be_sealed(kind):
    with pytest.raises(LocalProtocolError, match="no kind of a message"):
        FrameSealer(KEY).seal(kind, b"")


def test_no_message_has_the_kind_of_bucket_pieces():
    assert BUCKET_KIND not in KINDS


def test_a_reader_with_its_own_socket_opens_frame_by_frame():
    sealer, opener = FrameSealer(KEY), FrameOpener(KEY)
    data = sealer.seal(48, b"abc")
    header = parse_header_untrusted(data[:HEADER_BYTES])
    assert header == Header(kind=48, more=False, counter=0, length=3)
    assert header.pack() == data[:HEADER_BYTES]
    assert opener.body_bytes(header) == 3 + TAG_BYTES == len(data) - HEADER_BYTES
    assert opener.open_untrusted(header, memoryview(data)[HEADER_BYTES:]) == Frame(48, b"abc")
    with pytest.raises(LocalProtocolError, match="body_bytes"):
        opener.open_untrusted(Header(48, more=False, counter=1, length=3), b"abc")


def test_a_reader_with_its_own_socket_is_parked_in_error_too():
    opener = FrameOpener(KEY)
    data = by_hand(OTHER_KEY, 0, 48, b"abc")
    header = parse_header_untrusted(data)
    with pytest.raises(TagError):
        opener.open_untrusted(header, data[HEADER_BYTES:])
    good = by_hand(KEY, 0, 48, b"abc")
    with pytest.raises(BadFrameError, match="failed before"):
        opener.open_untrusted(header, good[HEADER_BYTES:])
    assert not opener.at_boundary


def test_counters_are_shared_by_all_that_writes_to_one_direction():
    sending, receiving = SendCounter(), ReceiveCounter()
    first, second = FrameSealer(KEY, sending), FrameSealer(KEY, sending)
    opener = FrameOpener(KEY, receiving)
    stream = first.seal(48, b"a") + second.seal(49, b"b") + first.seal(48, b"c")
    assert [frame.payload for frame in opener.feed_untrusted(stream)] == [b"a", b"b", b"c"]
    receiving.check_untrusted(3)
    with pytest.raises(BadFrameError, match="frame 2 came, 3 was next"):
        receiving.check_untrusted(2)


def test_a_used_up_counter_is_our_error():
    counter = SendCounter()
    counter._next = 2**64 - 1
    assert counter.take() == 2**64 - 1
    with pytest.raises(LocalProtocolError, match="used up"):
        counter.take()


def test_pieces_are_numbered_when_they_are_asked_for():
    counter = SendCounter()
    pieces = FrameSealer(KEY, counter).pieces(86, bytes(2 * PIECE_BYTES))
    assert parse_header_untrusted(next(pieces)).counter == 0
    assert counter.take() == 1
    assert parse_header_untrusted(next(pieces)).counter == 2
