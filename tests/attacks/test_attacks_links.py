"""Links under attack: every altered, moved, doubled, foreign or broken byte ends its own link only.

Whatever was verified before the first altered byte counts, in its order; nothing after it does.
"""

import pytest
from attack_tools import Victim, flips
from net_pairs import bucket, session_keys

from flodl_core.errors import BadFrameError
from flodl_core.messages.mux import Data
from flodl_core.wire.buckets import BucketSealer
from flodl_core.wire.codec import encode
from flodl_core.wire.frame import FrameSealer, SendCounter, TagError
from flodl_core.wire.handshake import SessionKeys

pytestmark = pytest.mark.slow

FIRST, SECOND = Data(rank=3, kind=63, payload=b"first"), Data(rank=3, kind=63, payload=b"second")
VALUES = bytes(range(64))
SEALED = pytest.mark.parametrize("is_sealed", [False, True], ids=["tagged", "sealed"])


def units(*, is_sealed: bool = False, keys: SessionKeys | None = None) -> list[bytes]:
    """A message, a bucket in two pieces, a message: what a relay's stream is made of."""
    keys = keys or session_keys()[1]
    counter = SendCounter()
    gcm_key = keys.send_gcm if is_sealed else None
    frames = FrameSealer(keys.send_hmac, counter, gcm_key=gcm_key)
    pieces = []
    first = frames.seal(*encode(FIRST))
    for piece in BucketSealer(keys.send_gcm, counter).iter_pieces(bucket(64), memoryview(VALUES)):
        pieces.append(b"".join(bytes(part) for part in piece))
    return [first, *pieces, frames.seal(*encode(SECOND))]


def took(victim: Victim) -> tuple[list[object], list[bytes]]:
    return victim.seen.messages, [values for _, values in victim.seen.buckets]


def of_units(count: int) -> tuple[list[object], list[bytes]]:
    """What the first so many units amount to."""
    messages: list[object] = ([FIRST] if count >= 1 else []) + ([SECOND] if count >= 4 else [])
    return messages, [VALUES] if count >= 3 else []


def unit_of(parts: list[bytes], at: int) -> int:
    """Which unit a byte lies in."""
    end = 0
    for number, part in enumerate(parts):
        end += len(part)
        if at < end:
            return number
    return len(parts)


@SEALED
def test_one_flipped_bit_at_every_position_stops_the_link_there(is_sealed) -> None:
    parts = units(is_sealed=is_sealed)
    whole = b"".join(parts)
    assert took(Victim(is_sealed=is_sealed).hear(whole)) == of_units(4)
    for at, broken in flips(whole, seed=7):
        victim = Victim(is_sealed=is_sealed).hear(broken)
        assert isinstance(victim.error, BadFrameError), at
        assert took(victim) == of_units(unit_of(parts, at)), at


@SEALED
def test_a_stream_cut_at_every_position_is_an_end_only_between_units(is_sealed) -> None:
    parts = units(is_sealed=is_sealed)
    whole = b"".join(parts)
    clean = {0, len(parts[0]), sum(map(len, parts[:3])), len(whole)}
    for cut in range(len(whole)):
        victim = Victim(is_sealed=is_sealed).hear(whole[:cut])
        assert (victim.error is None) == (cut in clean), cut
        assert took(victim) == of_units(unit_of(parts, cut)), cut


@SEALED
@pytest.mark.parametrize(
    ("order", "good"),
    [
        ((0, 0), 1),
        ((1,), 0),
        ((0, 2), 1),
        ((0, 3), 1),
        ((0, 1, 1), 1),
        ((0, 1, 2, 1, 2), 3),
        ((0, 1, 2, 3, 0), 4),
        ((0, 1, 2, 3, 3), 4),
        ((3, 2, 1, 0), 0),
    ],
)
def test_units_that_are_replayed_left_out_or_moved_are_refused(is_sealed, order, good) -> None:
    parts = units(is_sealed=is_sealed)
    victim = Victim(is_sealed=is_sealed).hear(b"".join(parts[number] for number in order))
    assert isinstance(victim.error, BadFrameError)
    assert took(victim) == of_units(good)


@SEALED
@pytest.mark.parametrize("spliced", range(4))
def test_a_unit_of_another_connection_is_refused_at_its_very_place(is_sealed, spliced) -> None:
    """The same numbers and the same content: only the keys are another connection's."""
    foreign = SessionKeys(
        send_hmac=b"o" * 32, receive_hmac=b"p" * 32, send_gcm=b"o" * 16, receive_gcm=b"p" * 16
    )
    parts = units(is_sealed=is_sealed)
    parts[spliced] = units(is_sealed=is_sealed, keys=foreign)[spliced]
    victim = Victim(is_sealed=is_sealed).hear(b"".join(parts))
    assert isinstance(victim.error, TagError)
    assert took(victim) == of_units(spliced)


def test_a_bucket_never_shows_a_value_before_its_tag_held() -> None:
    parts = units()
    broken = bytearray(parts[2])
    broken[-1] ^= 1
    victim = Victim().hear(parts[0] + parts[1] + bytes(broken) + parts[3])
    assert victim.seen.buckets == []
    assert bytes(victim.seen.place) == b"\xee" * 64
