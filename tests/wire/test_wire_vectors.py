"""Golden vectors: the bytes of this wire, frozen in tests/vectors.

A change of these bytes is a change of the protocol. After an intended one run
`FLODL_WRITE_VECTORS=1 pytest tests/wire/test_wire_vectors.py` and review the
difference of the files.
"""

import hashlib
import json
import os
from dataclasses import fields
from pathlib import Path

import msgpack
import pytest
from handshake_by_hand import exchange
from wire_examples import EXAMPLES

from flodl_core.ids import Round
from flodl_core.messages import KINDS, NUMBERS
from flodl_core.messages.data import BucketFrame
from flodl_core.units import PIECE_BYTES
from flodl_core.wire.buckets import BucketOpener, BucketSealer, piece_body_bytes
from flodl_core.wire.codec import decode_untrusted, encode
from flodl_core.wire.frame import (
    HEADER_BYTES,
    TAG_BYTES,
    Frame,
    FrameOpener,
    FrameSealer,
    ReceiveCounter,
    SendCounter,
    parse_header_untrusted,
)
from flodl_core.wire.handshake import Channel, ClientHandshake, ServerHandshake, operator_token
from flodl_core.wire.salt import SaltOpener, SaltSealer

VECTORS = Path(__file__).parents[1] / "vectors"
HMAC_KEY = bytes(range(32))
GCM_KEY = bytes(range(16))


def frozen(name, made):
    """Compare what was made with the file, or write the file when asked to; return its content."""
    path = VECTORS / f"{name}.json"
    if os.environ.get("FLODL_WRITE_VECTORS") == "1":
        text = json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True)
        path.write_text(text + "\n", encoding="utf-8")
    kept = json.loads(path.read_text(encoding="utf-8"))
    different = sorted(key for key in {*made, *kept} if made.get(key) != kept.get(key))
    assert not different, (
        f"{different} in {path.name} are not what the wire makes now; "
        "if the protocol was meant to change, run this file with FLODL_WRITE_VECTORS=1"
    )
    return kept


def readable(value):
    """A plain payload as JSON, with bytes as {"hex": …} and infinities as text."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return {"float": str(value)}
    if isinstance(value, (list, tuple)):
        return [readable(item) for item in value]
    if isinstance(value, dict):
        return {key: readable(item) for key, item in value.items()}
    return value


def message_vector(message):
    kind, payload = encode(message)
    names = [field.name for field in fields(message)]
    values = dict(zip(names, readable(msgpack.unpackb(payload)), strict=True))
    return {"kind": kind, "payload": payload.hex(), "fields": values}


def test_every_message_class_has_a_vector_and_encodes_to_it():
    made = {type(message).__name__: message_vector(message) for message in EXAMPLES}
    kept = frozen("messages", made)
    assert {vector["kind"] for vector in kept.values()} == set(KINDS)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_message_is_decoded_from_its_vector(message):
    kept = json.loads((VECTORS / "messages.json").read_text(encoding="utf-8"))
    vector = kept[type(message).__name__]
    assert vector["kind"] == NUMBERS[type(message)]
    assert decode_untrusted(vector["kind"], bytes.fromhex(vector["payload"])) == message


FRAMES = [Frame(63, b"\x90"), Frame(58, bytes.fromhex("91ce00011170")), Frame(80, b"")]
LARGE = Frame(34, bytes(range(256)) * (PIECE_BYTES // 256) + b"end")


def described(piece, tail_bytes):
    """A long frame or piece: its ends in hex, its body as a digest."""
    body = piece[HEADER_BYTES : len(piece) - tail_bytes]
    return {
        "header": piece[:HEADER_BYTES].hex(),
        "body_bytes": len(body),
        "body_sha256": hashlib.sha256(body).hexdigest(),
        "tag": piece[len(piece) - tail_bytes :].hex(),
    }


def test_frames_are_those_of_the_vectors():
    made = {"hmac_key": HMAC_KEY.hex()}
    for name, key, tag_bytes in (("tagged", HMAC_KEY, TAG_BYTES), ("plain", None, 0)):
        sealer = FrameSealer(key)
        made[name] = [
            {"kind": f.kind, "payload": f.payload.hex(), "frame": sealer.seal(*f).hex()}
            for f in FRAMES
        ]
        made[f"{name}_in_pieces"] = [described(piece, tag_bytes) for piece in sealer.pieces(*LARGE)]
    kept = frozen("frames", made)
    for name, key in (("tagged", HMAC_KEY), ("plain", None)):
        stream = b"".join(bytes.fromhex(vector["frame"]) for vector in kept[name])
        assert FrameOpener(key).feed_untrusted(stream) == FRAMES


def bucket_of(nbytes, round_, dtype, mass):
    return BucketFrame(
        cycle=17,
        round=round_,
        index=1,
        count=2,
        mass=mass,
        ranks=(0, 3),
        nbytes=nbytes,
        dtype=dtype,
    )


BUCKETS = [
    (bucket_of(16, Round.PARAMS, "f32", 3.0), bytes(range(16))),
    (bucket_of(0, Round.BUFFERS, "f32", 0.0), b""),
    (bucket_of(24, Round.CONTROL, "f64", 0.5), bytes(range(100, 124))),
]
LARGE_BUCKET = bucket_of(PIECE_BYTES + 8, Round.PARAMS, "f32", 1.0)


def test_bucket_pieces_are_those_of_the_vectors():
    counter = SendCounter()
    sealer = BucketSealer(GCM_KEY, counter)
    made = {"gcm_key": GCM_KEY.hex(), "buckets": []}
    for frame, values in BUCKETS:
        pieces = [b"".join(p).hex() for p in sealer.iter_pieces(frame, memoryview(values))]
        payload = encode(frame)[1].hex()
        made["buckets"].append({"frame": payload, "values": values.hex(), "pieces": pieces})
    values = memoryview(LARGE.payload + b"s" * 5)
    made["in_pieces"] = [
        described(b"".join(piece), 16) for piece in sealer.iter_pieces(LARGE_BUCKET, values)
    ]
    kept = frozen("buckets", made)

    rooms = []
    opener = BucketOpener(
        GCM_KEY,
        ReceiveCounter(),
        place=lambda frame: memoryview(rooms.append(bytearray(frame.nbytes)) or rooms[-1]),
    )
    opened = []
    for bucket in kept["buckets"]:
        for text in bucket["pieces"]:
            piece = bytes.fromhex(text)
            header = parse_header_untrusted(piece)
            assert len(piece) == HEADER_BYTES + piece_body_bytes(header)
            opened.append(opener.open_piece_untrusted(header, piece[HEADER_BYTES:]))
    assert [frame for frame in opened if frame is not None] == [frame for frame, _ in BUCKETS]
    assert rooms == [values for _, values in BUCKETS if values]


DRAWN = {
    "client_nonce": bytes(range(32)),
    "client_private": bytes(range(32, 64)),
    "server_nonce": bytes(range(64, 96)),
    "server_private": bytes(range(96, 128)),
}
TOKEN = bytes(range(200, 216))
HANDSHAKES = {
    "join_token": (Channel.JOIN, TOKEN),
    "join_open": (Channel.JOIN, None),
    "mux": (Channel.MUX, bytes(range(220, 236))),
}


def test_handshakes_are_those_of_the_vectors_and_of_the_rfcs():
    made = {"operator_token": {"token": TOKEN.hex(), "text": operator_token(TOKEN)}}
    for name, (channel, psk) in HANDSHAKES.items():
        client = ClientHandshake(
            channel, psk, nonce=DRAWN["client_nonce"], private_key=DRAWN["client_private"]
        )
        server = ServerHandshake(
            channel,
            psk or TOKEN,
            open_admission=True,
            nonce=DRAWN["server_nonce"],
            private_key=DRAWN["server_private"],
        )
        reply, _ = server.reply_untrusted(client.hello())
        keys = client.finish_untrusted(reply)
        vector = {
            "client_hello": client.hello(),
            "server_hello": reply,
            "up_hmac": keys.send_hmac,
            "down_hmac": keys.receive_hmac,
            "up_gcm": keys.send_gcm,
            "down_gcm": keys.receive_gcm,
        }
        auth = 0 if psk is None else 1
        assert vector == exchange(channel.value, auth, psk or bytes(16), **DRAWN)
        drawn = {key: value.hex() for key, value in DRAWN.items()}
        secret = {"psk": (psk or bytes(16)).hex()}
        made[name] = {**drawn, **secret, **{key: value.hex() for key, value in vector.items()}}
    gcm_key = bytes.fromhex(made["join_token"]["down_gcm"])
    sealed = SaltSealer(gcm_key).seal(bytes(range(16)))
    made["salt"] = {
        "gcm_key": gcm_key.hex(),
        "salt": bytes(range(16)).hex(),
        "sealed": sealed.hex(),
    }
    kept = frozen("handshakes", made)
    opened = SaltOpener(gcm_key).open_untrusted(bytes.fromhex(kept["salt"]["sealed"]))
    assert opened == bytes(range(16))
