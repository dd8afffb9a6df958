"""Messages to kind and payload, and back.

A payload is one msgpack array: the fields of the class in their order. Types
are exact, lengths are exact, floats are doubles; nothing is skipped or
defaulted, because both ends run the same message set (Offer.schema says so).

It knows no headers, counters or tags (flodl_core.wire.frame) and no meaning:
whether a rank exists is for the machine that receives the message. Whoever
reads from a peer calls `decode_untrusted`; it raises BadFrameError only.
"""

from typing import Final

import msgpack

from flodl_core.errors import BadFrameError, LocalProtocolError
from flodl_core.messages import KINDS, NUMBERS, RESERVED_KINDS
from flodl_core.messages.mux import Data
from flodl_core.units import MAX_PAYLOAD_BYTES
from flodl_core.wire.cursor import Cursor, MisfitError
from flodl_core.wire.shapes import shape_of

MAX_MESSAGE_BYTES: Final = MAX_PAYLOAD_BYTES - 64
"""Largest payload of a message that a relay may have to wrap in a mux.Data."""


def encode(message: object) -> tuple[int, bytes]:
    """Turn a message into its kind number and payload.

    Raises:
        LocalProtocolError: it is no message, a field holds another type than
            its annotation says, or the payload is above the limit.
    """
    kind = NUMBERS.get(type(message))
    if kind is None:
        raise LocalProtocolError(
            f"{type(message).__name__} is no message",
            fix="send an instance of a class registered in flodl_core.messages",
        )
    try:
        payload: bytes = msgpack.packb(shape_of(type(message)).pack(message), use_bin_type=True)
    except (MisfitError, ValueError, OverflowError) as error:
        detail = str(error) if isinstance(error, MisfitError) else f": {error}"
        raise LocalProtocolError(
            f"cannot encode {type(message).__name__}{detail}",
            fix="give each field a value of the type that its annotation names",
        ) from error
    limit = MAX_PAYLOAD_BYTES if isinstance(message, Data) else MAX_MESSAGE_BYTES
    if len(payload) > limit:
        raise LocalProtocolError(
            f"a {type(message).__name__} of {len(payload)} bytes is above the {limit} of a payload",
            fix="send less in one message",
        )
    return kind, payload


def decode_untrusted(kind: int, payload: bytes) -> object | None:
    """Turn a peer's kind number and payload into a message.

    Returns:
        The message; None for a reserved kind, which is ignored.

    Raises:
        BadFrameError: an unknown kind, or a payload that is not exactly one
            message of that kind.
    """
    if kind in RESERVED_KINDS:
        return None
    message_class = KINDS.get(kind)
    if message_class is None:
        raise BadFrameError(
            f"message kind {kind} is not known here",
            fix="run the same flodl version on every host",
        )
    try:
        cursor = Cursor(payload)
        message: object = shape_of(message_class).read(cursor)
        left = cursor.left
    except (IndexError, msgpack.OutOfData) as error:
        raise BadFrameError(
            f"the payload of a {message_class.__name__} ends too early",
            fix="run the same flodl version on every host",
        ) from error
    except (MisfitError, ValueError, msgpack.UnpackException) as error:
        detail = str(error) if isinstance(error, MisfitError) else f": {error}"
        raise BadFrameError(
            f"the payload is no {message_class.__name__}{detail}",
            fix="run the same flodl version on every host",
        ) from error
    if left:
        raise BadFrameError(
            f"{left} bytes follow a {message_class.__name__} in its payload",
            fix="run the same flodl version on every host",
        )
    return message
