"""Sealed buckets: pieces, one counter with the frames, nothing used before its tag held."""

import struct
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.errors import BadFrameError, LocalProtocolError
from flodl_core.ids import Round
from flodl_core.messages.control import RequestParams
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.rendezvous import Uid
from flodl_core.units import BUCKET_BYTES, PIECE_BYTES
from flodl_core.wire.buckets import (
    MAX_PIECE_BODY_BYTES,
    PIECE_OVERHEAD_BYTES,
    BucketOpener,
    BucketSealer,
    piece_body_bytes,
)
from flodl_core.wire.codec import decode_untrusted, encode
from flodl_core.wire.frame import (
    BUCKET_KIND,
    HEADER_BYTES,
    FrameOpener,
    FrameSealer,
    ReceiveCounter,
    SendCounter,
    TagError,
    parse_header_untrusted,
)

GCM_KEY = bytes(range(16))
HMAC_KEY = bytes(range(32))
PATTERN = bytes(range(251)) * (BUCKET_BYTES // 251 + 1)


def frame_of(nbytes, **changes):
    frame = BucketFrame(
        cycle=3,
        round=Round.PARAMS,
        index=0,
        count=4,
        mass=2.5,
        ranks=(0, 2),
        nbytes=nbytes,
        dtype="f32",
    )
    return replace(frame, **changes)


def sealed(frame, values, *, counter=None, key=GCM_KEY):
    """All pieces of a bucket as bytes."""
    sealer = BucketSealer(key, SendCounter() if counter is None else counter)
    return [b"".join(piece) for piece in sealer.iter_pieces(frame, memoryview(values))]


def by_hand(counter, index, plain, *, more, key=GCM_KEY, kind=BUCKET_KIND):
    """A piece from the words of the format."""
    associated = b"FLO1" + struct.pack(">BBHQI", 1, int(more), kind, counter, len(plain))
    associated += struct.pack(">I", index)
    nonce = bytes(4) + struct.pack(">Q", counter)
    return associated + AESGCM(key).encrypt(nonce, plain, associated)


class Receiver:
    """One direction of a connection, reading as a thread with a socket would."""

    def __init__(self, **options):
        self.counter = ReceiveCounter()
        self.rooms = []
        self.done = []
        self.messages = []
        self.buckets = BucketOpener(GCM_KEY, self.counter, place=self.place, **options)
        self.frames = FrameOpener(HMAC_KEY, self.counter)

    def place(self, frame):
        self.rooms.append(bytearray(b"\xee" * frame.nbytes))
        return memoryview(self.rooms[-1])

    def read(self, stream):
        while stream:
            header = parse_header_untrusted(stream)
            stream = stream[HEADER_BYTES:]
            if header.kind == BUCKET_KIND:
                size = piece_body_bytes(header)
                frame = self.buckets.open_piece_untrusted(header, stream[:size])
                self.done += [] if frame is None else [frame]
            else:
                size = self.frames.body_bytes(header)
                message = self.frames.open_untrusted(header, stream[:size])
                self.messages += [] if message is None else [decode_untrusted(*message)]
            stream = stream[size:]


SIZES = [0, 4, 64, PIECE_BYTES - 4, PIECE_BYTES, PIECE_BYTES + 4, BUCKET_BYTES]


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_bucket_is_its_frame_and_then_its_values_in_the_written_format(nbytes):
    frame, values = frame_of(nbytes), PATTERN[:nbytes]
    parts = [encode(frame)[1]]
    parts += [values[i : i + PIECE_BYTES] for i in range(0, nbytes, PIECE_BYTES)]
    assert sealed(frame, values) == [
        by_hand(i, i, part, more=i < len(parts) - 1) for i, part in enumerate(parts)
    ]


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_bucket_comes_back_in_its_place(nbytes):
    frame, values = frame_of(nbytes), PATTERN[:nbytes]
    receiver = Receiver()
    pieces = sealed(frame, values)
    assert all(len(piece) <= HEADER_BYTES + MAX_PIECE_BODY_BYTES for piece in pieces)
    for piece in pieces:
        assert receiver.done == []
        receiver.read(piece)
        assert receiver.buckets.at_boundary == (piece is pieces[-1])
    assert receiver.done == [frame]
    assert [bytes(room) for room in receiver.rooms] == ([values] if nbytes else [])


def test_values_of_any_shape_are_taken_as_bytes():
    values = memoryview(bytes(range(48))).cast("f", (3, 4))
    receiver = Receiver()
    receiver.read(b"".join(sealed(frame_of(48), values)))
    assert bytes(receiver.rooms[0]) == bytes(range(48))


@given(st.lists(st.integers(0, 3), min_size=6, max_size=6))
@settings(max_examples=15, deadline=None)
def test_messages_go_between_pieces_and_share_the_counter(gaps):
    counter = SendCounter()
    frames, buckets = FrameSealer(HMAC_KEY, counter), BucketSealer(GCM_KEY, counter)
    stream, sent = [], []
    for count in (2, 0):
        nbytes = count * PIECE_BYTES
        for piece in buckets.iter_pieces(frame_of(nbytes), memoryview(PATTERN)[:nbytes]):
            stream.append(b"".join(piece))
            for _ in range(gaps[len(stream) % 6]):
                sent.append(RequestParams(cycle=len(sent)))
                stream.append(frames.seal(*encode(sent[-1])))
    receiver = Receiver()
    receiver.read(b"".join(stream))
    assert receiver.messages == sent
    assert [frame.nbytes for frame in receiver.done] == [2 * PIECE_BYTES, 0]
    counters = [parse_header_untrusted(piece).counter for piece in stream]
    assert counters == list(range(len(stream)))


def test_a_large_message_and_a_bucket_may_alternate():
    counter = SendCounter()
    large = FrameSealer(HMAC_KEY, counter).pieces(34, encode(Uid(uid=bytes(2 * PIECE_BYTES)))[1])
    bucket = BucketSealer(GCM_KEY, counter).iter_pieces(frame_of(64), memoryview(PATTERN)[:64])
    stream = next(large) + b"".join(next(bucket)) + next(large) + b"".join(next(bucket))
    stream += next(large)
    receiver = Receiver()
    receiver.read(stream)
    assert [len(message.uid) for message in receiver.messages] == [2 * PIECE_BYTES]
    assert receiver.done == [frame_of(64)]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_in_any_piece_is_refused_and_its_values_are_not_used(data):
    pieces = sealed(frame_of(64), PATTERN[:64])
    hit = data.draw(st.integers(0, 1))
    bit = data.draw(st.integers(0, 8 * len(pieces[hit]) - 1))
    broken = bytearray(pieces[hit])
    broken[bit // 8] ^= 1 << (bit % 8)
    receiver = Receiver()
    receiver.read(b"".join(pieces[:hit]))
    try:
        header = parse_header_untrusted(broken)
    except BadFrameError:
        return
    if header.kind != BUCKET_KIND:
        # It is read as a message then, whose tag fails.
        body = bytes(receiver.frames.body_bytes(header))
        with pytest.raises(BadFrameError):
            receiver.frames.open_untrusted(header, body)
        return
    body = bytes(broken[HEADER_BYTES:]).ljust(piece_body_bytes(header), b"\0")
    with pytest.raises(BadFrameError):
        receiver.buckets.open_piece_untrusted(header, body[: piece_body_bytes(header)])
    assert not receiver.buckets.at_boundary
    assert receiver.done == []
    assert all(set(room) == {0xEE} for room in receiver.rooms)


def test_a_late_broken_piece_leaves_the_opened_ones_and_never_completes():
    nbytes = 3 * PIECE_BYTES
    pieces = sealed(frame_of(nbytes), PATTERN[:nbytes])
    broken = bytearray(pieces[2])
    broken[-1] ^= 1
    receiver = Receiver()
    with pytest.raises(TagError, match="piece 2"):
        receiver.read(b"".join([pieces[0], pieces[1], bytes(broken)]))
    assert bytes(receiver.rooms[0][:PIECE_BYTES]) == PATTERN[:PIECE_BYTES]
    assert set(receiver.rooms[0][PIECE_BYTES:]) == {0xEE}
    with pytest.raises(BadFrameError, match="failed before"):
        receiver.read(pieces[2])


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ((0, 2), "frame 2 came, 1 was next"),
        ((0, 1, 1), "frame 1 came, 2 was next"),
        ((1,), "frame 1 came, 0 was next"),
        ((0, 0), "frame 0 came, 1 was next"),
    ],
)
def test_lost_replayed_and_moved_pieces_are_refused(order, why):
    nbytes = PIECE_BYTES + 4
    pieces = sealed(frame_of(nbytes), PATTERN[:nbytes])
    with pytest.raises(BadFrameError, match=why):
        Receiver().read(b"".join(pieces[i] for i in order))


def test_pieces_of_another_connection_or_of_another_number_are_refused():
    with pytest.raises(TagError):
        Receiver().read(b"".join(sealed(frame_of(4), b"abcd", key=bytes(16))))
    piece = by_hand(1, 0, encode(frame_of(0))[1], more=False)
    renumbered = sealed(frame_of(0), b"")[0][:HEADER_BYTES] + piece[HEADER_BYTES:]
    with pytest.raises(TagError):
        Receiver().read(renumbered)


def begin(nbytes, *, more=True, at=0, **changes):
    """The first piece of a bucket, sealed whatever it says."""
    return by_hand(0, at, encode(frame_of(nbytes, **changes))[1], more=more)


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (begin(8) + by_hand(1, 1, bytes(12), more=False), "more values than its frame says"),
        (begin(8) + by_hand(1, 1, bytes(4), more=False), "ended with 4 of 8"),
        (begin(8) + by_hand(1, 1, bytes(8), more=True), "goes on after its last value"),
        (begin(8) + by_hand(1, 1, b"", more=True), "empty piece"),
        (begin(8) + by_hand(1, 2, bytes(8), more=False), "piece 2 of a bucket came, not 1"),
        (begin(8, at=1), "piece 1 of a bucket came, not 0"),
        (begin(8, more=False), "disagree"),
        (begin(0, more=True), "disagree"),
        (begin(BUCKET_BYTES + 4), "at most"),
        (by_hand(0, 0, b"junk", more=False), "BucketFrame"),
        (by_hand(0, 0, b"", more=False), "BucketFrame"),
    ],
)
def test_a_sealed_bucket_that_contradicts_itself_is_refused(stream, why):
    receiver = Receiver()
    with pytest.raises(BadFrameError, match=why):
        receiver.read(stream)
    assert receiver.done == []
    assert not receiver.buckets.at_boundary


FLAWS = [
    ({"nbytes": -4}, "-4 bytes"),
    ({"nbytes": 7}, "no whole number of f32"),
    ({"nbytes": 12, "dtype": "f64"}, "no whole number of f64"),
    ({"dtype": "f16"}, "dtype 'f16' is none of f32, f64, bf16"),
    ({"mass": -1.0}, "its mass is -1.0"),
    ({"mass": float("nan")}, "its mass is nan"),
    ({"mass": float("inf")}, "its mass is inf"),
    ({"index": 4}, "bucket 4 of 4"),
    ({"index": -1}, "bucket -1 of 4"),
    ({"cycle": -1}, "cycle -1"),
    ({"ranks": (2, 1)}, "not ascending"),
    ({"ranks": (1, 1)}, "not ascending"),
    ({"ranks": (-1, 1)}, "rank -1"),
]


@pytest.mark.parametrize(("flaw", "why"), FLAWS)
def test_a_frame_that_nobody_can_use_is_refused_by_both_ends(flaw, why):
    flaw = {"nbytes": 8, **flaw}
    with pytest.raises(BadFrameError, match=why):
        Receiver().read(begin(**flaw))
    with pytest.raises(LocalProtocolError, match=why):
        sealed(frame_of(**flaw), bytes(max(flaw["nbytes"], 0)))


def test_values_and_frame_must_agree_before_anything_is_sealed():
    counter = SendCounter()
    sealer = BucketSealer(GCM_KEY, counter)
    with pytest.raises(LocalProtocolError, match="8 bytes and 4 were given"):
        sealer.iter_pieces(frame_of(8), memoryview(b"abcd"))
    with pytest.raises(LocalProtocolError, match="not contiguous"):
        sealer.iter_pieces(frame_of(8), memoryview(bytes(16))[::2])
    assert counter.take() == 0


@pytest.mark.parametrize("room", [bytearray(4), bytearray(12), bytes(8)])
def test_room_of_another_size_or_read_only_is_our_error(room):
    opener = BucketOpener(GCM_KEY, ReceiveCounter(), place=lambda frame: memoryview(room))
    piece = begin(8)
    header = parse_header_untrusted(piece)
    with pytest.raises(LocalProtocolError, match="bytes of room"):
        opener.open_piece_untrusted(header, piece[HEADER_BYTES:])
    assert not opener.at_boundary


def test_a_body_of_the_wrong_size_or_kind_is_our_error():
    opener = Receiver().buckets
    piece = begin(8)
    header = parse_header_untrusted(piece)
    assert piece_body_bytes(header) == header.length + PIECE_OVERHEAD_BYTES
    with pytest.raises(LocalProtocolError, match="piece_body_bytes"):
        opener.open_piece_untrusted(header, piece[HEADER_BYTES:-1])
    with pytest.raises(LocalProtocolError, match="BUCKET_KIND"):
        Receiver().buckets.open_piece_untrusted(header._replace(kind=48), piece[HEADER_BYTES:])


def test_a_piece_of_a_bucket_is_no_message_frame():
    with pytest.raises(BadFrameError, match="bucket"):
        FrameOpener(HMAC_KEY).feed_untrusted(begin(8))


@given(
    st.integers(0, 1),
    st.integers(0, 3),
    st.integers(0, 3),
    st.binary(max_size=80),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_arbitrary_pieces_raise_nothing_but_bad_frame(counter, index, more, plain, honest):
    piece = by_hand(counter, index, plain, more=more & 1, key=GCM_KEY if honest else bytes(16))
    receiver = Receiver()
    try:
        receiver.read(piece)
    except BadFrameError:
        assert not receiver.buckets.at_boundary


def test_no_nonce_occurs_twice_in_a_direction_whatever_is_sent():
    counter = SendCounter()
    frames, buckets = FrameSealer(HMAC_KEY, counter), BucketSealer(GCM_KEY, counter)
    numbers = []
    for _ in range(3):
        for piece in buckets.iter_pieces(frame_of(8), memoryview(bytes(8))):
            numbers.append(parse_header_untrusted(piece[0]).counter)
        numbers.append(parse_header_untrusted(frames.seal(48, b"")).counter)
    assert numbers == list(range(9))


def test_one_receive_buffer_fits_the_largest_body_of_pieces_and_message_frames():
    counter = SendCounter()
    pieces = sealed(frame_of(PIECE_BYTES), PATTERN[:PIECE_BYTES], counter=counter)
    frames = [*FrameSealer(HMAC_KEY, counter).pieces(34, bytes(2 * PIECE_BYTES))]
    assert max(len(sent) - HEADER_BYTES for sent in pieces + frames) == MAX_PIECE_BODY_BYTES


def test_equal_buckets_are_sealed_differently_each_time():
    counter = SendCounter()
    first = sealed(frame_of(64), bytes(64), counter=counter)
    second = sealed(frame_of(64), bytes(64), counter=counter)
    assert first[1][-80:] != second[1][-80:]


def test_what_a_step_yields_is_read_only_and_one_run_of_bytes():
    sealer = BucketSealer(GCM_KEY, SendCounter())
    for piece in sealer.iter_pieces(frame_of(8), memoryview(bytes(8))):
        (buffer,) = piece
        assert buffer.readonly
        assert buffer.contiguous
