"""Messages and bytes: exact, strict, bounded."""

import tracemalloc
from dataclasses import dataclass, fields, replace
from enum import StrEnum

import msgpack
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wire_examples import BATCH, EXAMPLES, JOB
from wire_strategies import MESSAGES

from flodl_core.errors import BadFrameError, LocalProtocolError
from flodl_core.ids import Round
from flodl_core.messages import KINDS, NUMBERS, RESERVED_KINDS
from flodl_core.messages.control import SetGlobalStep, Shutdown, StartEpoch
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.job import JobRef
from flodl_core.messages.join import Accept, Knock, Offer
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.messages.mux import Data, RelayHello
from flodl_core.messages.rendezvous import Uid
from flodl_core.messages.timing import Batches, LrUpdate
from flodl_core.units import MAX_PAYLOAD_BYTES
from flodl_core.wire.codec import MAX_MESSAGE_BYTES, decode_untrusted, encode
from flodl_core.wire.cursor import MAX_ITEMS
from flodl_core.wire.shapes import shape_of

FRAME = next(example for example in EXAMPLES if isinstance(example, BucketFrame))


@pytest.mark.slow
@given(MESSAGES)
@settings(max_examples=200, deadline=None)
def test_every_message_comes_back_equal_and_of_equal_types(message):
    kind, payload = encode(message)
    back = decode_untrusted(kind, payload)
    assert back == message
    assert repr(back) == repr(message)
    assert NUMBERS[type(back)] == kind
    assert encode(back) == (kind, payload)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_payload_is_one_plain_msgpack_array_of_the_fields_in_order(message):
    _, payload = encode(message)
    plain = msgpack.unpackb(payload, use_list=False)
    assert isinstance(plain, tuple)
    assert len(plain) == len(fields(message))
    for field, value in zip(fields(message), plain, strict=True):
        original = getattr(message, field.name)
        if isinstance(original, (bool, int, float, str, bytes)) or original is None:
            assert value == original


def test_there_is_exactly_one_example_of_every_message_class():
    assert sorted(NUMBERS[type(message)] for message in EXAMPLES) == sorted(KINDS)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_shorter_and_longer_payload_is_refused(message):
    kind, payload = encode(message)
    for cut in range(len(payload)):
        with pytest.raises(BadFrameError):
            decode_untrusted(kind, payload[:cut])
    with pytest.raises(BadFrameError, match="1 bytes follow"):
        decode_untrusted(kind, payload + b"\xc0")


def test_reserved_kinds_are_ignored_and_unknown_kinds_refused():
    for kind in RESERVED_KINDS:
        assert decode_untrusted(kind, b"anything") is None
    for kind in (0, 1, 3, 999, 65535):
        with pytest.raises(BadFrameError, match=f"kind {kind} is not known"):
            decode_untrusted(kind, b"\x90")


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=200))
@example(80, b"\x92\x01\x91" + b"\x91" * 500)
@example(16, b"\x91\xa2\xff\xfe")
@example(16, b"\x91\xc1")
@settings(max_examples=500, deadline=None)
def test_arbitrary_bytes_raise_nothing_but_bad_frame(kind, payload):
    try:
        message = decode_untrusted(kind, payload)
    except BadFrameError:
        return
    assert type(message) is KINDS[kind]
    encode(message)


NESTED = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(),
        st.binary(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.slow
@given(st.sampled_from(sorted(KINDS)), st.lists(NESTED, max_size=12))
@settings(max_examples=150, deadline=None)
def test_well_formed_msgpack_of_another_shape_raises_nothing_but_bad_frame(kind, values):
    payload = msgpack.packb(values)
    try:
        message = decode_untrusted(kind, payload)
    except BadFrameError:
        return
    assert type(message) is KINDS[kind]


@given(st.sampled_from(EXAMPLES), st.data())
@settings(max_examples=300, deadline=None)
def test_a_changed_byte_gives_a_message_of_the_kind_or_bad_frame(message, data):
    kind, payload = encode(message)
    changed = bytearray(payload)
    changed[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        back = decode_untrusted(kind, bytes(changed))
    except BadFrameError:
        return
    assert type(back) is type(message)
    encode(back)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ([1], "byte 0x01 does not begin a float"),
        ([True, 0.5], "byte 0xc3 does not begin an int"),
        ([1.0, 0.5], "byte 0xcb does not begin an int"),
        ([None, 0.5], "byte 0xc0 does not begin an int"),
        ([1, 0.5, 3], "3 fields, a LrUpdate has 2"),
        ([1, [0.5]], "byte 0x91 does not begin a float"),
    ],
)
def test_a_field_takes_its_own_type_only(payload, why):
    lr_update = NUMBERS[LrUpdate]
    if len(payload) == 1:
        payload = [0, *payload]
    with pytest.raises(BadFrameError, match=why):
        decode_untrusted(lr_update, msgpack.packb(payload))


def test_a_float_of_single_precision_is_refused():
    payload = msgpack.packb([1, 0.5], use_single_float=True)
    with pytest.raises(BadFrameError, match="0xca does not begin a float"):
        decode_untrusted(NUMBERS[LrUpdate], payload)


def test_an_unknown_enum_value_is_named_with_its_field():
    _, payload = encode(FRAME)
    with pytest.raises(BadFrameError, match=r"BucketFrame\.round: 'params_' is no Round"):
        decode_untrusted(
            NUMBERS[BucketFrame],
            msgpack.packb(["params_" if v == "params" else v for v in msgpack.unpackb(payload)]),
        )


def test_a_dict_with_a_key_twice_or_a_key_that_is_no_string_is_refused():
    offer = next(example for example in EXAMPLES if isinstance(example, Offer))
    fields_of_it = msgpack.unpackb(encode(offer)[1])
    head = msgpack.packb(fields_of_it)
    args = msgpack.packb(fields_of_it[2][2])
    assert head.count(args) == 1
    for wrong, why in (
        (b"\x82\xa1a\x01\xa1a\x02", "occurs twice"),
        (b"\x81\x01\x01", "does not begin a str"),
    ):
        with pytest.raises(BadFrameError, match=why):
            decode_untrusted(NUMBERS[Offer], head.replace(args, wrong))


def test_a_union_keeps_ints_floats_bools_and_tuples_apart():
    args = {"a": 1, "b": 1.0, "c": True, "d": "1", "e": (1, 1.0, False, "x"), "f": ()}
    offer = Offer(
        run_id="r",
        mode="cpu_sync",
        job=JobRef(kind="recipe", name="x", args=args),
        batch_size=1,
        seed=1,
        wire_dtype="f32",
        schema=1,
    )
    with pytest.raises(LocalProtocolError, match=r"Offer\.mode: str is no Mode"):
        encode(offer)
    offer = replace(offer, mode=next(e for e in EXAMPLES if isinstance(e, Offer)).mode)
    back = decode_untrusted(*encode(offer))
    assert repr(back.job.args) == repr(args)


def test_ints_become_floats_where_the_annotation_says_float_and_numpy_ints_become_ints():
    message = LrUpdate(rank=np.int64(3), lr=2)
    back = decode_untrusted(*encode(message))
    assert repr(back) == "LrUpdate(rank=3, lr=2.0)"
    batch = replace(BATCH, loss=np.float32(0.5), param_norm=4)
    row = decode_untrusted(*encode(Batches(rank=0, rows=(batch,)))).rows[0]
    assert (type(row.loss), row.loss, type(row.param_norm)) == (float, 0.5, float)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (LrUpdate(rank="1", lr=0.1), r"LrUpdate\.rank: str is no int"),
        (LrUpdate(rank=True, lr=0.1), r"LrUpdate\.rank: bool is no int"),
        (LrUpdate(rank=1, lr="fast"), r"LrUpdate\.lr: str is no float"),
        (LrUpdate(rank=1, lr=True), r"LrUpdate\.lr: bool is no float"),
        (LrUpdate(rank=1, lr=10**400), r"LrUpdate\.lr: int is no float"),
        (LrUpdate(rank=2**64, lr=0.1), "cannot encode LrUpdate"),
        (LrUpdate(rank=-(2**63) - 1, lr=0.1), "cannot encode LrUpdate"),
        (Knock(version="\ud800"), "cannot encode Knock"),
        (Knock(version=b"1"), r"Knock\.version: bytes is not a str"),
        (Accept(ranks=[1], formation_wait_s=1.0), r"Accept\.ranks: list is no tuple"),
        (Accept(ranks=("1",), formation_wait_s=1.0), r"Accept\.ranks\[\]: str is no int"),
        (Accept(ranks=(), salt="x", formation_wait_s=1.0), r"Accept\.salt: str is not bytes"),
        (StartEpoch(plan=None), r"StartEpoch\.plan: NoneType is no EpochPlan"),
        (replace(FRAME, round="params"), r"BucketFrame\.round: str is no Round"),
        (object(), "object is no message"),
        (JOB, "JobRef is no message"),
    ],
)
def test_a_message_with_a_wrong_field_is_our_error_and_names_the_field(message, why):
    with pytest.raises(LocalProtocolError, match=why):
        encode(message)


def test_a_dict_with_a_wrong_value_or_key_is_our_error():
    good = next(example for example in EXAMPLES if isinstance(example, MetricsMsg))
    with pytest.raises(LocalProtocolError, match=r"scalars\['x'\]\[\]: str is no float"):
        encode(replace(good, scalars={"x": ("a", 1.0)}))
    with pytest.raises(LocalProtocolError, match=r"scalars\[1\]: int is not a str"):
        encode(replace(good, scalars={1: (0.5, 1.0)}))
    with pytest.raises(LocalProtocolError, match="list is no dict"):
        encode(replace(good, scalars=[]))


def test_payloads_and_collections_are_bounded_when_sent():
    assert len(encode(Uid(uid=bytes(MAX_MESSAGE_BYTES - 6)))[1]) == MAX_MESSAGE_BYTES
    with pytest.raises(LocalProtocolError, match="above the"):
        encode(Uid(uid=bytes(MAX_MESSAGE_BYTES - 5)))
    with pytest.raises(LocalProtocolError, match=f"{MAX_ITEMS + 1} items"):
        encode(Accept(ranks=(0,) * (MAX_ITEMS + 1), formation_wait_s=1.0))


def test_the_largest_message_of_a_rank_still_fits_when_a_relay_wraps_it():
    kind, payload = encode(Uid(uid=bytes(MAX_MESSAGE_BYTES - 6)))
    _, wrapped = encode(Data(rank=2**31, kind=kind, payload=payload))
    assert len(wrapped) <= MAX_PAYLOAD_BYTES


def claim(tag: bytes, items: int) -> bytes:
    return tag + items.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (19, b"\x93" + claim(b"\xdd", 2**32 - 1) + b"\x01" * 1000),
        (19, b"\x93" + claim(b"\xdd", MAX_ITEMS) * 200_000),
        (19, b"\x93" + b"\x91" * 1_000_000),
        (16, b"\x91" + claim(b"\xdb", 2**32 - 1) + b"a" * 1000),
        (34, b"\x91" + claim(b"\xc6", 2**32 - 1) + b"a" * 1000),
        (34, b"\x91" + claim(b"\xc9", 2**31) + b"a" * 1000),
        (34, b"\x91\xc4\x05abc"),
        (96, b"\x9a" + claim(b"\xdf", 2**32 - 1)),
        (80, claim(b"\xdd", 2**32 - 1)),
    ],
)
def test_no_claim_makes_the_reader_allocate_more_than_came(kind, payload):
    tracemalloc.start()
    try:
        with pytest.raises(BadFrameError):
            decode_untrusted(kind, payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(payload) + 200_000


def test_a_tuple_as_long_as_the_limit_comes_back():
    message = Accept(ranks=(1,) * MAX_ITEMS, formation_wait_s=1.0)
    assert decode_untrusted(*encode(message)) == message
    over = b"\x93" + claim(b"\xdd", MAX_ITEMS + 1) + b"\x01" * (MAX_ITEMS + 20)
    with pytest.raises(BadFrameError, match="items claimed"):
        decode_untrusted(NUMBERS[Accept], over)


def test_a_message_without_fields_is_one_byte():
    assert encode(Shutdown()) == (64, b"\x90")
    assert decode_untrusted(64, b"\x90") == Shutdown()


def test_a_known_payload_is_what_the_msgpack_specification_says():
    step = SetGlobalStep(n=70000, own_batches=5, cohort_batches=300)
    assert encode(step) == (58, bytes.fromhex("93 ce 00 01 11 70 05 cd 01 2c"))
    assert encode(LrUpdate(rank=1, lr=0.5)) == (84, bytes.fromhex("92 01 cb 3f e0000000000000"))
    hello = RelayHello(host="é", ranks=(1, 200, 65536), sigs=())
    assert encode(hello) == (113, bytes.fromhex("93 a2 c3a9 93 01 ccc8 ce00010000 90"))
    assert encode(Accept(ranks=(), salt=None, formation_wait_s=0.0)) == (
        19,
        bytes.fromhex("93 90 c0 cb0000000000000000"),
    )


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    colour: Colour | None


@pytest.mark.parametrize(
    "annotation",
    [list[int], tuple[int, int], dict[int, int], set[int], complex, int | bool | tuple, object],
)
def test_annotations_that_no_message_may_use_are_refused(annotation):
    with pytest.raises(TypeError, match="cannot be a field"):
        shape_of(annotation)


@pytest.mark.parametrize("annotation", [Colour | str, Inner | tuple[int, ...]])
def test_a_union_whose_members_begin_alike_is_refused(annotation):
    with pytest.raises(TypeError, match="different msgpack tags"):
        shape_of(annotation)


def test_every_round_name_travels():
    for round_ in Round:
        frame = replace(FRAME, round=round_)
        assert decode_untrusted(*encode(frame)) == frame
